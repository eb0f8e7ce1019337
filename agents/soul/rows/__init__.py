"""Task files and the rows in them.

task_files.py    read parquet files into validated rows
parsing.py       parse fields that public data sets write in several ways
truncation.py    shorten a row until its prompt fits
leaks.py         keep the gold answer out of the feedback
letters.py       find letters that point at an option; quotations.py finds quoted options
overlap.py       find training rows that share a story, book or user with evaluation rows
"""
