"""Task files and the rows in them.

task_files.py    read parquet files into validated rows
truncation.py    shorten a row until its prompt fits
overlap.py       find training rows that share a story, book or user with evaluation rows
data_card.py     the card beside a file: where its rows come from and under which licences
"""
