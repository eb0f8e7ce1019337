"""The paper's figures and tables from one's own runs: `soul figures --help`.

training_run.py    metrics, tasks and hash of a training run; the arguments NAME=FOLDER,FOLDER
figure.py          what a figure shows: means over seeds with bands, dots, alarms; and its CSV
training.py        panels: curves by task and metric, the gap, the ablation, signs of known failures with their alarms
drawing.py         a figure as PDF, SVG, PNG and CSV, and its colours
tables.py          tables of every metric beside the score, of task files, and of judges against people
feedback.py        the table of the feedback on one scenario early and late
__main__.py        the command, and its index: what was written, what could not be drawn, hashes
"""
