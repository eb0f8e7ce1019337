"""The parts of `python -m data.train`: `table` of builders and sources, `building`."""
