"""SOUL: the gym and benchmark of human simulation.

A task plays a row with a policy, judges the episode and says in words what to do better; `refine.run_session`
turns that into a draft and a refined episode. Nothing in here needs torch, Ray or verl: a laptop with an
OpenAI-compatible endpoint is enough to play and score every task.
"""
