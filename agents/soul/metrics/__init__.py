"""Metrics that several tasks share, as pure functions.

ngram.py          BLEU and ROUGE-L
overlap.py        token F1
gpt4o_tokens.py   the tokens that MirrorBench counts
lexical.py        lexical diversity, and how similar two writers are in it
set_metrics.py    metrics of a whole set, with weights for the bootstrap
intervals.py      95 % intervals of all means and differences
"""
