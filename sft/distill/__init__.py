"""Expert distillation: the best answers of several experts to the training rows become SFT data for one student.

In the order in which a sample passes through them:
    experts.py     TASK=EXPERT: which rows, and which model answers them
    sampling.py    k samples per row, played and scored as in an evaluation; resumes at the first missing sample
    sample.py      the finished samples, as the selection sees them; their conversations as SFT rows
    select.py      which samples are kept, and why the others are not
    dataset.py     train.parquet and val.parquet
    report.py      the counts, as a table and as distill.json; ends the command if a task has lost too many samples
"""
