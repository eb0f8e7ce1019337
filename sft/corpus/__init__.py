"""The corpus on disk: from its files (sft/formats) to token ids, and the order in which they are trained.

sources         the settings of a corpus; the files of a split, and how often an epoch passes over them
row_encoder     encodes a row, and counts what is dropped
tokenize        tokenises the files, once, with several processes
store           the tokens on disk, as sequences by number
order           a shuffle of all rows that needs no memory and no state
batches         the sequences that each rank gets at each step
split           opens a split: all of the above in one call
"""
