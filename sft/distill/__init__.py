"""Expert distillation: the best answers of several experts to the training rows become SFT data for one student.

    python -m sft.distill --out DIR TASK=EXPERT...     sample, select, write
    python -m sft.distill --out DIR --margin 0.5       select again from the existing samples
    python -m sft.distill --out DIR --from-traces RUN  forward distillation: the refined answers of a DITTO run

In the order in which a sample passes through them:
    experts.py       TASK=EXPERT: which rows, and which model answers them
    sampling.py      k samples per row, played and scored as in an evaluation; resumes at the first missing sample
    conversation.py  a seat's conversation as an SFT row, and fingerprints that find duplicates
    sample.py        a finished sample, as the selection sees it
    journals.py      the experts' samples; traces.py: refined answers of DITTO runs, in the base context
    heldout.py       rows of evaluations, which must not be trained on
    select.py        which samples are kept, and why the others are not
    dataset.py       train.parquet and val.parquet
    report.py        the counts, as a table and as distill.json
    coverage_check.py  ends the command if a task has lost too many samples

recipe/ditto/distill.sh also trains the student and evaluates it:
    steps.py         whether a step must run, because something that its result was made of has changed
    inputs.py        what a result is made of: models, rows, files, judges, settings
"""
