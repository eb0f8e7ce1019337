"""Supervised training: midtraining on human corpora, SFT, and the distillation of experts into one model.

launch          what `train_sft.py` does: check, tokenise, start the processes
config_checks, preflight    the checks before the start: values; model, corpus, folders, memory
trainer         the training loop, on verl's SFT trainer
corpus, encode  from parquet files to token sequences in training order
run             processes, checkpoints, signals, evaluation during the training
distill         expert distillation by rejection sampling
"""
