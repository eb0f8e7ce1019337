"""The sequences of one training step on their way from the agent loops to the optimizer."""
