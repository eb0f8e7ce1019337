"""Compare finished evaluations row by row. `python -m soul.compare --help`

pairs.py        the rows that two runs share, and what could not be paired
protocol.py     where scores are not comparable: other judges, partners, judge prompts or task options
comparison.py   the numbers: differences with paired intervals, wins and losses, the macro average
report.py       tables for the terminal and in Markdown, and JSON
page/           every paired row on an HTML page, with both texts
table.py        several runs in one table, a column each: `python -m soul.compare.table RUN RUN ...`
naming.py       what the runs are called
"""
