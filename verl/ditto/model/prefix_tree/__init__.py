"""Compute every token of a prompt's group once: rows with the same beginning share it, in log-prob and update passes.

tree.py           rows of token ids as a tree
attention.py      attention in which every branch sees its ancestors and itself
packing.py        a micro-batch as a tree, and the model's outputs as the losses expect them
micro_batches.py  which rows share a micro-batch
eligibility.py    for which runs this is exact
"""
