"""How much memory a run needs, on each GPU and on each node, computed before anything starts.

`plan.py` reads a composed config and says what each phase of a step holds, whether it fits, and which override would
make it fit. The arithmetic (`model_shape`, `head`, `training`, `rollout`, `host`) is plain Python without torch:
a benchmark can import it beside torch and transformers alone.
"""
