"""Look at training runs while they run and after: `soul view outputs/` serves a page on this machine only.

discovery.py       finds training runs, evaluations and comparison pages below a folder: what an address can name
session_row.py     what the index keeps of one session
index.py           index.sqlite: builds it, lets it grow, checks it; its sessions as JSON columns
sessions.py        one session's text by offset; a search looks through all of them
overview.py        all numbers of a run: means with 95 % bands over prompts, calls, and what happened when
against.py         the prompts that two runs share
training.py        one run as the server keeps it: index, revision, a thread that keeps up with the files
server.py          the HTTP server, with the headers and bodies of its answers
export.py          a run as one file, with the texts of chosen or telling sessions
page.py            the page (page.html, view.css, script/)

The index is a cache beside the traces: delete it whenever you like, and it is built again. Nothing here writes to any
other file of a run, except `soul.pages.export.write_run_report`, which the training calls when it ends.
"""
