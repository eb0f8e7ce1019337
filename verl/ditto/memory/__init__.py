"""Compute how much memory a run needs on each GPU and each node, before anything starts."""
