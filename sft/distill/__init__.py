"""Expert distillation: what several experts answer on the training rows becomes the SFT data of one student.

    python -m sft.distill --out DIR TASK=EXPERT...     sample, select, write
    python -m sft.distill --out DIR --margin 0.5       select anew from what was sampled
    python -m sft.distill --out DIR --from-traces RUN  forward distillation: a DITTO run's refined answers

The way of a sample:
    experts.py       TASK=EXPERT: which rows, and who answers them
    sampling.py      k samples a row, played and scored as in an evaluation; resumable at the sample
    conversation.py  a seat's conversation as an SFT row, and what makes two of them the same
    sample.py        a finished sample, as the selection sees it
    journals.py      samples of experts; traces.py: refined answers of DITTO runs, in the context without feedback
    unseen.py        rows that an evaluation asks about, and which must not be trained on
    select.py        which samples are kept, and why the others are not
    dataset.py       train.parquet and val.parquet
    report.py        what happened, as a table and as distill.json
"""
