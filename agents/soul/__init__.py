"""SOUL: the gym and benchmark of human simulation.

A task plays a row with a policy, judges the episode and says in words what to do better; `session.run_session` turns
that into a draft and a refined episode. Nothing in here needs torch, Ray or verl: a laptop with an OpenAI-compatible
endpoint is enough to play and score every task.
"""

__version__: str


def __getattr__(name: str) -> str:
    """The version, from the installed package's metadata: read when it is asked for, because that takes a while."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("ditto-soul")
