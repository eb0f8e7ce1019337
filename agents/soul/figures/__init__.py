"""The paper's figures and tables from one's own runs: `soul figures --help`.

training_run.py    metrics, tasks and hash of a training run; the arguments NAME=FOLDER,FOLDER
figure.py          what a figure shows: means over seeds with bands, dots; and its CSV
training.py        panels: curves by task, the gap, the ablation
drawing.py         a figure as PDF, SVG, PNG and CSV, and its colours
command.py         the command, and its index: what was written, what could not be drawn, hashes
"""
