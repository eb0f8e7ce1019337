"""Refuse overrides of keys that this trainer does not read (`fixed_keys.py`), and of unknown keys."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.fixed_keys import FIXED
from ditto.config_checks.keys import Reader, pattern_of, reader_of
from ditto.launching.compose import default_config
from ditto.settings import BadConfig

_ABSENT = object()


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaf keys of a config in dotted form, with their values. An empty section or a list counts as a leaf."""
    if isinstance(tree, dict) and tree:
        for name, below in tree.items():
            yield from leaves(below, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, tree


def refuse_unread(config: DictConfig) -> None:
    """Check that every overridden key is read.

    Raises:
        BadConfig: for the first override that would be ignored, with the reason and the key to use instead.
    """
    for paragraph in unread_overrides(config):
        raise BadConfig(paragraph)


def unread_overrides(config: DictConfig) -> Iterator[str]:
    """One paragraph for each override that would be ignored."""
    defaults = _defaults_beside(config)
    for key, value in leaves(OmegaConf.to_container(config)):
        if _is_fixed(key) and value != defaults.get(key, _ABSENT):
            yield f"{key}={value!r}: {_why(key, known=key in defaults)}"


def _why(key: str, *, known: bool) -> str:
    pattern = pattern_of(key)
    if pattern is not None:
        return FIXED[pattern]
    if known:
        return "verl has this key, but its effect on this trainer has not been checked yet. Leave it at its default."
    return unknown_key(key, dict(leaves(OmegaConf.to_container(default_config("gpu")))), "train_ppo.py")


def unknown_key(key: str, known: Iterable[str], program: str) -> str:
    """What to tell about a key that does not exist; `program` lists all keys."""
    near = difflib.get_close_matches(key, list(known), n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"nothing in this trainer reads such a key.{hint} To list all keys: python {program} --cfg"


def _defaults_beside(config: DictConfig) -> dict[str, Any]:
    """The defaults of all fixed keys. A default that refers to another key (`${...}`) gets the user's value of it."""
    defaults = default_config("cpu" if config.trainer.device == "cpu" else "gpu")
    sections: dict[str, dict[str, Any]] = {}
    for key, value in leaves(OmegaConf.to_container(defaults)):
        if _is_fixed(key):
            section, _, name = key.rpartition(".")
            sections.setdefault(section, {})[name] = value
    resolved: dict[str, Any] = {}
    for section, values in sections.items():
        if any("${" in value for value in values.values() if isinstance(value, str)):
            above = OmegaConf.select(config, section.rpartition(".")[0]) if "." in section else config
            values = OmegaConf.to_container(OmegaConf.create(values, parent=above), resolve=True)
        resolved |= dict(leaves(values, section))
    return resolved


def _is_fixed(key: str) -> bool:
    return reader_of(key) in (None, Reader.FIXED)
