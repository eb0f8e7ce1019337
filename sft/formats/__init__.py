"""The files that hold a corpus: parquet, arrow, JSON and plain text, the last two also compressed.

names        what a file's name says of its format, and what a file seems to be by its content
contents     what a file holds: rows, columns, and where its parts begin
reading      describe a file, and read any part of it: one entrance for all formats
columnar     parquet files, and the arrow files of `datasets`
byte_blocks  parts of a text file, plain or compressed
json_rows    JSON lines and JSON arrays
plain_text   one document, in pieces
folders      the data files of a folder: shards, or what `datasets` saved
"""
