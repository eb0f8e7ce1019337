"""Options that must keep their default unless another option gives them a meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omegaconf import OmegaConf

from ditto.config_checks.rules import Rule
from ditto.launching.compose import default_config


def default(key: str) -> Any:
    """The default of a key."""
    return OmegaConf.select(default_config("gpu"), key)


def changed(run: Any, key: str) -> bool:
    """Whether a key has another value than its default."""
    return bool(OmegaConf.select(run.config, key) != default(key))


def only_if(key: str, other: str, applies: Callable[[Any], Any], when: str) -> Rule:
    """A rule: an option has its default unless another one has a value that makes it matter.

    Args:
        applies: whether a value of the other option makes it matter.
        when: these values, for the message.
    """
    return Rule(
        key,
        lambda run: changed(run, key) and not applies(OmegaConf.select(run.config, other)),
        f"is read only if {other} is {when}. Remove it, or set that.",
    )
