"""Supervised training: midtraining on human corpora, SFT, and the distillation of experts into one model."""
