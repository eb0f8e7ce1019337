"""The judge gateway in a training run: its plan, its limits shared by all workers, and the watch over its cost."""
