"""The drop-in user: a model that plays the user for other tools (player.py, serve.py: `soul serve`), and the faults of
such a user, found by rule in its turns (faults.py) and in recorded conversations (audit.py: `soul audit`)."""
