"""The pages on which people look at results and decide about them.

annotate.py    draws texts for people to label, keeps their labels, and compares them with each other and the judge
review.py      shows the rows of training files and the rows that were left out, and keeps marks for the builder
"""
