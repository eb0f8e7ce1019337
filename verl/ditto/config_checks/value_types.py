"""Check that every value has the type of its key, before any other code reads it.

verl's config files declare no types, so text in place of a number would fail minutes later, wherever it is first used.
The tables give a key its type (`numbers.py`, `TEXTS`); for all other keys the default does. A default of null allows
any type, and sections that are empty by default (`data.mixture.weights`) allow any key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.numbers import Number
from ditto.settings import BadConfig

# Keys whose value is text or a list of texts.
TEXTS = (
    *("data.train_files", "data.val_files", "trainer.logger"),
    *(f"{model}.{key}" for model in ("model", "actor_rollout_ref.model") for key in ("target_modules", "external_lib")),
    *(f"{model}.exclude_modules" for model in ("model", "actor_rollout_ref.model")),
)
# A number or text; `value_rules.py` checks it.
_CHECKED_BY_RULES = ("algorithm.rollout_correction.rollout_is_threshold",)
# Sections whose keys differ between platforms.
_PLATFORM_SECTIONS = ("actor_rollout_ref.rollout.engine_kwargs", "ray_kwargs")
# Keys whose value may be any text, but not empty.
_NOT_EMPTY = ("actor_rollout_ref.model.path", "model.path", "run.dir", "trainer.default_local_dir")
_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
}


def check_types(config: DictConfig, defaults: DictConfig, numbers: Mapping[str, Number]) -> None:
    """Check the types of all values.

    Args:
        defaults: the config without overrides, unresolved.
        numbers: key -> the numbers that it takes; these override the types of the defaults.

    Raises:
        BadConfig: for the first value that has the wrong type or is out of range.
    """
    values = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    default_values = OmegaConf.to_container(defaults, resolve=False)
    # Keys whose default follows another key come last: the message should name the other key.
    for key, default, value in sorted(_pairs(default_values, values), key=lambda pair: "${" in str(pair[1])):
        wanted = _wanted(key, default, value, numbers)
        if wanted:
            raise BadConfig(f"{key}={_shown(value)}: use {wanted}{_default(default)}.")
    for key, number in numbers.items():  # also covers keys that are null by default or absent from the defaults
        value = OmegaConf.select(config, key)
        if value is not None and not number.takes(value):
            raise BadConfig(f"{key}={_shown(value)}: use {number}.")


_REMOVED = object()


def _pairs(default: Any, value: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every key with its default and its value. A section whose value is not a section comes as one pair."""
    if not isinstance(default, dict) or not default or not isinstance(value, dict):
        yield key, default, value
        return
    for name, below in default.items():
        if name not in value and key.startswith(_PLATFORM_SECTIONS):
            continue
        yield from _pairs(below, value.get(name, _REMOVED), f"{key}.{name}" if key else str(name))


def _wanted(key: str, default: Any, value: Any, numbers: Mapping[str, Number]) -> str | None:
    """What the key takes, for the message; None if the value is valid."""
    if value is _REMOVED:
        return "its default: a key cannot be removed"
    if isinstance(default, dict):
        first = f", for instance {key}.{next(iter(default))}=..." if default else ""
        return None if isinstance(value, dict) else f"its keys one by one, because it is a section{first}"
    if key in numbers:
        return None if numbers[key].takes(value) else str(numbers[key])
    if key in TEXTS:
        texts = value if isinstance(value, list) else [value]
        return None if value is None or all(isinstance(t, str) for t in texts) else "text or a list of texts"
    if key in _NOT_EMPTY and not (isinstance(value, str) and value.strip()):
        return "text that is not empty"
    if default is None or key in _CHECKED_BY_RULES or (isinstance(default, str) and default.startswith("${")):
        return None
    if isinstance(default, str):
        return None if isinstance(value, str) else "text; put a number that is meant as a name in quotes: '\"7\"'"
    if type(default) is float:
        return None if type(value) in (int, float) else _KINDS[float]
    return None if type(value) is type(default) else _KINDS[type(default)]


def _default(default: Any) -> str:
    usual = isinstance(default, bool | int | float) or (isinstance(default, str) and default not in ("", "???"))
    if not usual or "${" in str(default):
        return ""
    return f" (the default is {_shown(default)})"


def _shown(value: Any) -> str:
    """A value in Hydra's notation."""
    if value is _REMOVED:
        return "(removed)"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)[:200]
