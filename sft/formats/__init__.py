"""The files that hold a corpus: parquet, arrow, JSON and plain text, the last two also compressed.

names        the format that a file's name stands for, and what a file seems to be by its content
reading      the rows of a file of any format, in batches
"""
