"""Every value has the type of its key, before any other code reads it.

verl's config files declare no types: a text where a number should be is found by whatever divides by it, minutes later.
A key's type is the one that a table gives it (`numbers.py`, `TEXTS`), else that of its default. A default of null says
nothing, and sections that are empty by default (`data.mixture.weights`) take any key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.numbers import Number
from ditto.settings import BadConfig

# Keys that take a text or a list of texts.
TEXTS = (
    *("data.train_files", "data.val_files", "trainer.logger"),
    *(f"{model}.{key}" for model in ("model", "actor_rollout_ref.model") for key in ("target_modules", "external_lib")),
    *(f"{model}.exclude_modules" for model in ("model", "actor_rollout_ref.model")),
)
# A number or a text: `value_rules.py` has its rule.
_OTHERWISE_CHECKED = ("algorithm.rollout_correction.rollout_is_threshold",)
# Sections whose keys differ between the platforms.
_OF_PLATFORMS = ("actor_rollout_ref.rollout.engine_kwargs", "ray_kwargs")
# Keys whose value must be there, though it may be any text.
_NOT_EMPTY = ("actor_rollout_ref.model.path", "model.path", "run.dir", "trainer.default_local_dir")
_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
}


def check_types(config: DictConfig, defaults: DictConfig, numbers: Mapping[str, Number]) -> None:
    """Check the types of all values.

    Args:
        defaults: the config without any override, unresolved.
        numbers: the numbers that keys take; these stand above the types of the defaults.

    Raises:
        BadConfig: for the first value of a wrong type or out of its range.
    """
    given = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    plain = OmegaConf.to_container(defaults, resolve=False)
    # A default that follows another key comes last: the other key is the one to name.
    for key, default, value in sorted(_pairs(plain, given), key=lambda pair: "${" in str(pair[1])):
        wanted = _wanted(key, default, value, numbers)
        if wanted:
            raise BadConfig(f"{key}={_shown(value)}: use {wanted}{_default(default)}.")
    for key, number in numbers.items():  # keys that are null by default, or that no default holds
        value = OmegaConf.select(config, key)
        if value is not None and not number.takes(value):
            raise BadConfig(f"{key}={_shown(value)}: use {number}.")


_GONE = object()


def _pairs(default: Any, value: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every key with its default and its value; a section that is none as a whole."""
    if not isinstance(default, dict) or not default or not isinstance(value, dict):
        yield key, default, value
        return
    for name, below in default.items():
        if name not in value and key.startswith(_OF_PLATFORMS):
            continue
        yield from _pairs(below, value.get(name, _GONE), f"{key}.{name}" if key else str(name))


def _wanted(key: str, default: Any, value: Any, numbers: Mapping[str, Number]) -> str | None:
    """What the key takes, where the value is not that."""
    if value is _GONE:
        return "what it was: a key cannot be removed"
    if isinstance(default, dict):
        return None if isinstance(value, dict) else "its keys one by one: this is a section" + _first_keys(key, default)
    if key in numbers:
        return None if numbers[key].takes(value) else str(numbers[key])
    if key in TEXTS:
        return None if _is_texts(value) else "a text, or a list of texts"
    if key in _NOT_EMPTY and not (isinstance(value, str) and value.strip()):
        return "a text that is not empty"
    if default is None or key in _OTHERWISE_CHECKED or (isinstance(default, str) and default.startswith("${")):
        return None
    if isinstance(default, str):
        return None if isinstance(value, str) else "a text; a number that is a name stands in quotes: '\"7\"'"
    if type(default) is float:
        return None if type(value) in (int, float) else _KINDS[float]
    return None if type(value) is type(default) else _KINDS[type(default)]


def _is_texts(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return value is None or all(isinstance(text, str) for text in texts)


def _first_keys(key: str, default: dict[str, Any]) -> str:
    return f", for instance {key}.{next(iter(default))}=..." if default else ""


def _default(default: Any) -> str:
    usual = isinstance(default, bool | int | float) or (isinstance(default, str) and default not in ("", "???"))
    if not usual or "${" in str(default):
        return ""
    return f" (the default is {_shown(default)})"


def _shown(value: Any) -> str:
    """As Hydra would take it."""
    if value is _GONE:
        return "(removed)"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)[:200]
