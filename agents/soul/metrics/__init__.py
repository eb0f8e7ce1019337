"""Metrics that several tasks share, as pure functions.

ngram.py          token F1, BLEU and ROUGE-L
lexical.py        lexical diversity over GPT-4o's tokens, and how similar two writers are in it
set_metrics.py    metrics of a whole set, with weights for the bootstrap
intervals.py      95 % intervals of all means and differences
"""
