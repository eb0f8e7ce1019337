"""How `python -m data.train` builds the training files: one subject a module.

table           which builder makes each file, from which sources
kept_rows       copies a file without the rows that share a group with evaluated ones
report          a page with rows that were kept and dropped, beside their sources
building        one training file: builder, comparison, card (`soul.rows.data_card`)
"""
