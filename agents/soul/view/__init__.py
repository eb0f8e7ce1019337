"""Look at trainings while they run and after: `soul view outputs/` serves a page on this machine only.

discovery.py       finds trainings, evaluations and comparison pages below a folder
session_row.py     what the index keeps of one session
index_file.py      where index.sqlite is, its tables, how a damaged one is replaced
index.py           builds the index, lets it grow, checks it; columns.py turns it into JSON columns
sessions.py        one session's text by offset; search.py looks through all of them
curves.py          means with 95 % bands over prompts; events.py what happened when; overview.py all numbers of a run
training.py        one run as the server keeps it: index, revision, a thread that keeps up with the files
catalogue.py       all folders as the server keeps them: what an address can name
server.py          the HTTP server; answers.py writes its headers and bodies
selection.py       which steps and sessions go into one file; export.py writes that file
page.py            the page (page.html, view.css, script/)

The index is a cache beside the traces: delete it whenever you like, and it is built again. Nothing here writes to any
other file of a run, except `soul.view.export.write_run_report`, which the training calls when it ends.
"""
