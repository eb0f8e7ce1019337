"""The paper's figures and tables from one's own runs: `soul figures --help`.

training_run.py    a training's metrics, its tasks and its hash
named_folders.py   the arguments NAME=FOLDER,FOLDER
curves.py          means over seeds with bands
figure.py          what a figure shows, and its CSV
training.py        panels of curves: by task, by metric, the gap, signs of known failures with their alarms
ablation.py        panels of dots: where each name ends, by metric
drawing.py         a figure as PDF, SVG and CSV
axes.py            one panel on its axes
evaluations.py     evaluations by name, seeds as further samples of a row
results.py         tables of scores and of paired differences
submetrics.py      table of every metric beside the score
datasets.py        tables of task files: rows, subsets, lengths
agreement.py       table of judges against people
feedback.py        the table of the feedback on one scenario early and late
table.py           a table as Markdown, LaTeX and CSV
csv_text.py        lines as CSV
index.py           what was written, what could not be drawn, hashes
"""
