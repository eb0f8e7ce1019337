"""The files that hold a corpus, and their rows: `reading`."""
