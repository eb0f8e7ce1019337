"""The keys of the config: type with range, and meaning; checks and texts are made from these."""

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ditto.settings import BadConfig

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "null"}
_SIGNS = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}


class Key(NamedTuple):
    """The values of one key, and its meaning; keys without a meaning are not in the documents."""

    type: Any
    meaning: str = ""


Keys = Mapping[str, Key]
Open = dict[str, Any]  # any key may follow


def _ordered(bounds: list[float]) -> list[float]:
    if not 0 <= min(bounds) <= max(bounds) < 1:
        raise ValueError("use numbers that are at least 0 and below 1")
    return bounds


Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareAboveZero = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
FromZero = Annotated[int, Field(ge=0)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Devices = Annotated[int, Field(ge=1, le=64)]  # of one node
Frequency = Annotated[int, Field(ge=-1)]  # every so many steps; 0 and -1: never
Limit = Literal[-1] | Count  # -1: no limit
Text = Annotated[str, Field(pattern=r"\S")]
Texts = str | list[str]  # one or several
Betas = Annotated[list[float], Field(min_length=2, max_length=2), AfterValidator(_ordered)]
Dtype = Literal["fp32", "float32", "bf16", "bfloat16", "fp16", "float16"]
Logger = Literal["console", "wandb", "tensorboard", "file"]  # those of verl's that tests cover
KlType = Literal["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "kl+", "k1+", "abs+", "low_var_kl+", "k3+"]


def several(kind: Any, names: str) -> dict[str, Key]:
    """Several keys of one type, separated by spaces."""
    return {name: Key(kind) for name in names.split()}


def below(section: str, keys: Keys) -> dict[str, Key]:
    """The keys with the section's name in front."""
    return {f"{section}.{name}": key for name, key in keys.items()}


def of_model(section: str, model: type[BaseModel], *, nullable: bool = False) -> dict[str, Key]:
    """The keys of a section that a model of ours validates; `nullable`: null stands for an inherited value."""
    found: dict[str, Key] = {}
    for name, field in model.model_fields.items():
        key, inner = f"{section}.{name}", field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= of_model(key, inner, nullable=nullable)
        else:
            kind = _kind_of(field)
            found[key] = Key(kind | None if nullable else kind, field.description or "")
    return found


def _kind_of(field: FieldInfo) -> Any:
    """The type of a field with its bounds, which hold for the part of a union that is not None."""
    parts = get_args(field.annotation) if _is_union(field.annotation) else (field.annotation,)
    if not field.metadata:
        return field.annotation
    bounded = [part if part is type(None) else Annotated[(part, *field.metadata)] for part in parts]
    return Union[tuple(bounded)]  # noqa: UP007


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    """The defaults of a model's fields, as a section of the config."""
    return model().model_dump(mode="json")


def covering(key: str, keys: Keys) -> str | None:
    """The entry that a key belongs to: itself, or the open section that it is in; None: nothing reads the key."""
    parts = key.split(".")
    above = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((name for name in above if name in keys and (name == key or _is_open(keys[name].type))), None)


def _is_open(kind: Any) -> bool:
    """Check that any key may follow: the type is a dictionary, or may be one."""
    parts = get_args(kind) if _is_union(kind) else (kind,)
    return any(get_origin(part) in (dict, Mapping) for part in parts)


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaf keys of a config in dotted form, with their values. An empty section or a list counts as a leaf."""
    if isinstance(tree, dict) and tree:
        for name, inner in tree.items():
            yield from leaves(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, tree


def takes(kind: Any, value: Any) -> bool:
    """Check whether a key of this type may have the value, without converting it."""
    try:
        TypeAdapter(kind, config=_STRICT).validate_python(value)
    except ValidationError:
        return False
    return True


def check_types(config: DictConfig, keys: Keys) -> None:
    """Check that every value has the type of its key and is in its range. Raises BadConfig."""
    values = dict(_sections(OmegaConf.to_container(config, resolve=True, throw_on_missing=False)))
    for name, key in keys.items():
        if name in values and not takes(key.type, values[name]):
            meaning = f" {key.meaning}" if key.meaning else ""
            raise BadConfig(f"{name}={shown(values[name])}: use {describe(key.type)}.{meaning}")


def _sections(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key and every section of a config in dotted form, with its value."""
    for name, inner in tree.items():
        key = f"{prefix}{name}"
        yield key, inner
        if isinstance(inner, dict):
            yield from _sections(inner, f"{key}.")


def describe(kind: Any) -> str:
    """Describe a type and its range in words: "whole number from 1, or null"."""
    if kind == Open:
        return "section"
    if _is_union(kind):
        parts = list(dict.fromkeys(describe(part) for part in get_args(kind)))
        return ", or ".join(parts) if "null" in parts else " or ".join(parts)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if get_origin(kind) is Annotated:
        base, *metadata = get_args(kind)
        bounds = [inner for each in metadata for inner in (each.metadata if isinstance(each, FieldInfo) else [each])]
        words = [
            f"{word} {value:,}" if isinstance(value, int) else f"{word} {value:g}"
            for bound in bounds
            for sign, word in _SIGNS.items()
            if (value := getattr(bound, sign, None)) is not None
        ]
        return " ".join([describe(base), *words]) + (" that is not empty" if base is str else "")
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (list, Sequence):
        inner = describe(arguments[0]) if arguments else "text"
        return f"list of {inner if inner.startswith('`') else f'{inner}s'}"
    return "section" if origin in (dict, Mapping) else _NAMES.get(origin, "text")


def shown(value: Any) -> str:
    """Write a value as on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}: {shown(inner)}" for name, inner in value.items()) + "}"
    return str(value)


def printed(config: DictConfig, keys: Keys) -> str:
    """List every key that the training reads, with its value and its meaning, for `--cfg`."""
    lines = []
    for name, value in leaves(OmegaConf.to_container(config, resolve=True)):
        entry = covering(name, keys)
        if entry is not None:
            meaning = keys[entry].meaning if entry == name else ""
            lines.append(f"{name}={shown(value)}" + (f"  # {meaning}" if meaning else ""))
    return "\n".join(lines)


def unread(key: str, keys: Keys, instead: Mapping[str, str], program: str) -> str:
    """The message about a key that nothing reads: the key to use instead, or the nearest key's full path."""
    given = instead.get(key) or next((text for name, text in instead.items() if key.startswith(f"{name}.")), None)
    hint = f"Use {given}." if given else f"Did you mean {near}?" if (near := nearest(key, keys)) else ""
    return f"{key} is not read by this trainer. {hint} To list all keys: python {program} --cfg".replace("  ", " ")


def nearest(key: str, keys: Keys) -> str | None:
    """The full path of the key that was probably meant: `rollout.n` is actor_rollout_ref.rollout.n."""
    if ending := [name for name in keys if name.endswith(f".{key}")]:
        return min(ending, key=lambda name: (not keys[name].meaning, len(name)))
    above, _, last = key.rpartition(".")
    if above in keys:
        return above
    # A long common beginning says nothing, so the last word must be similar; then the rest decides.
    similar = difflib.get_close_matches(last, {name.rpartition(".")[2] for name in keys}, n=1, cutoff=0.7)
    candidates = [name for name in keys if name.rpartition(".")[2] in similar]
    return next(iter(difflib.get_close_matches(key, candidates, n=1, cutoff=0.0)), None)
