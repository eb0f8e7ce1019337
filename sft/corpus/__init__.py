"""The corpus on disk: from its files (sft/formats) to token ids, and the order in which they are trained.

sources         which files a split consists of, and how often an epoch passes over them
index           rows, columns and sources of the files, read once
columns         columns that mean something else than this training does, refused by name
row_encoder     encodes a row, and counts what is dropped
tokenize        makes the token store, once, with several processes
claims          which process does which part of that, among all nodes
store           the token store: flat files, read in place
store_limits    how large it is, and what is removed from it
order           a shuffle of all rows that needs no memory and no state
batches         which sequences each rank gets at each step
dataset         sequences as torch tensors
split           opens a split: all of the above in one call
settings        the config's section `data`, as far as it describes the corpus
parquet_shards  rows as parquet shards, for `soul convert`
"""
