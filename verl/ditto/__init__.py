"""DITTO on verl: reinforcement learning with verbal feedback, as a plug-in of verl 0.9.x.

Importing this package costs nothing; verl loads `verl_hooks.plugin` in every process.
"""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    """The version, from the installed package's metadata: read when it is asked for, because that takes a while."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("ditto-soul")
