"""Compare evaluations or training runs row by row: `soul compare --help`.

runs.py         compare_runs: folders -> ComparisonTable, runs of equal settings as seeds; pair_texts: a row's two texts
comparison.py   the numbers: differences with intervals, adjusted p-values, the macro average; as JSON
evaluations.py  evaluations: the rows that two share, scores of a set as a whole
trainings.py    training runs: groups of prompts in the same step
protocol.py     why scores are not comparable: other judges, partners, judge prompts or task options
report.py       the table of differences, for the terminal and in Markdown
table.py        the table of scores, a column for each side (`--table`, and `soul figures`)
"""
