"""What the trainer does around verl's rollout engine."""
