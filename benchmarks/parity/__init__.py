"""SOUL's scores beside those of the benchmarks' authors, on the same answers."""
