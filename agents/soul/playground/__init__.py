"""Play a row yourself, let an endpoint play it, or talk to a trained simulator.

playground.py   the sessions: rows, turns, verdicts, refined answers, what is kept; the page uses it too
terminal.py     `soul play TASK`
"""
