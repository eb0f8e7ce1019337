"""Chat templates: what a model reads in a conversation, turn by turn, in training, evaluation and serving.

Nothing here imports transformers: a tokenizer is an argument.
"""
