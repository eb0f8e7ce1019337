"""Look at training runs while they run and after: `soul view outputs/` serves a page on this machine only.

catalogue.py            finds runs below a folder: what an address can name; facts.py: what their small files say
index.py                index.sqlite, a row for each session (session_row.py); sessions.py: their texts, and a search
training_numbers.py     the numbers of a run, with themes.py (of feedback) and verdict.py (a sentence)
training_view.py        one run as the server keeps it: index, revision, a thread that keeps up with the files
api.py, server.py       the addresses and the HTTP server; extensions.py: comparisons, playground, annotation, review
page.py, export.py      the page (page.html, style.css, script/), served or written as one file

The index is a cache beside the traces: delete it whenever you like, and it is built again. Nothing here writes to any
other file of a run, except `soul.pages.export.write_run_report`, which the training calls when it ends.
"""
