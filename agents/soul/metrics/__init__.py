"""Metrics that several tasks share: pure functions of texts."""
