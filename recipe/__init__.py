"""Runnable recipes: `ditto` holds the values of the DITTO paper, `demo` shows DITTO on two CPU cores."""
