"""How `python -m data.train` builds the training files: one subject a module.

table           which builder makes each file, from which sources
kept_rows       copies a file without the rows that share a group with evaluated ones
card            the data card beside each file
difficulty      what a file reveals without its task: baselines for choices, shapes of dialogues
building        one training file: builder, comparison, card
plan            what would be built, what is missing and what it costs
"""
