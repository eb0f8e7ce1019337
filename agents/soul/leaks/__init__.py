"""Keep the gold answer out of the feedback.

redaction.py     withhold the answer, and whatever points at an option or quotes one
letters.py       find letters that point at an option; quotations.py finds quoted options
"""
