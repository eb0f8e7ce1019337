"""Metrics that several tasks share, as pure functions; metrics of whole sets; intervals and p-values."""
