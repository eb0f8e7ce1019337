"""Compare finished evaluations row by row: `soul compare --help`.

pairs.py        the rows that two runs share, and counts of those that cannot be paired
protocol.py     why scores are not comparable: other judges, partners, judge prompts or task options
comparison.py   the numbers: differences with paired intervals, wins and losses, the macro average
report.py       tables for the terminal and in Markdown, and JSON
page/           an HTML page of every paired row, with both texts
table.py        several runs in one table, one column per run: `soul compare table RUN RUN ...`
"""
