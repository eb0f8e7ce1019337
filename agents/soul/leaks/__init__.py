"""Keep the gold answer out of the feedback (redaction.py), also letters and quotations that point at it."""
