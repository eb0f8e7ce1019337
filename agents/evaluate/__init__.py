"""Evaluate a model on SOUL: any OpenAI-compatible endpoint, 27 sets, one table. `python -m agents.evaluate --help`

settings.py    which model, judges and rows; what makes two runs different runs
journal.py     every finished sample on disk at once
engine.py      the samples: sessions of the driver without feedback
progress.py    what is seen meanwhile
results.py     from samples to numbers, with row_result.py, set_result.py and bootstrap.py: means, intervals,
               failures as bounds, cost
published.py   the numbers of the paper and of the model card
table.py       the table, on a terminal and in Markdown
"""
