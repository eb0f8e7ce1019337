"""Play a row yourself, let an endpoint play it, or talk to a trained simulator.

playground.py   the sessions: rows, turns, verdicts, refined answers, what is kept; for the page (`soul view --play`) too
terminal.py     `soul play TASK`
"""
