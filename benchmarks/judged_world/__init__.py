"""A judged world for `benchmarks.learning`: Sotopia on a small market, with rules as partner and judge."""
