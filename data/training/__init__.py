"""How `python -m data.train` builds the training files: `table` of builders and sources, `building`, `report`."""
