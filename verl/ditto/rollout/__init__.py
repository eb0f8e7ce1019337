"""The trainer's side of verl's rollout engine: agent loop, token seat, replay buffer, weight-sync alarm."""
