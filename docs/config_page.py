"""Write docs/configuration.md: every key of ours with type, range, default and meaning, from the configs and the code.

    python docs/config_page.py            # write the page
    python docs/config_page.py --check    # exit code 1 where the page is not what the code says

A meaning is the comment of the key in the YAML file, or, for keys without a comment, the text in
docs/config_meanings.yaml. A key with neither ends the script with an error.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from omegaconf import OmegaConf
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ditto.config_checks.numbers import RL_NUMBERS, Number
from ditto.config_checks.value_rules import RULES as RL_RULES
from ditto.config_checks.value_types import TEXTS
from ditto.launching.compose import compose_config
from ditto.objectives.options import ErlOptions, ObjectiveOptions, SdpoOptions
from ditto.rows.mixture import MixtureSettings
from ditto.settings import RunSettings
from sft.config_checks import RULES as SFT_RULES
from sft.config_checks import SFT_NUMBERS
from soul import tasks
from soul.cli.error_border import Parser, reports_errors
from soul.judge.call.endpoint import Endpoint
from soul.judge.circuit_breaker import BreakerSettings
from soul.judge.roles import JudgePolicy
from soul.session import RefineSettings

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configuration.md"
RL, SFT, RECIPE = ROOT / "verl/ditto/config", ROOT / "sft/config", ROOT / "recipe/ditto/config/ditto.yaml"
MEANINGS = ROOT / "docs" / "config_meanings.yaml"
# Sections that a pydantic model of ours validates.
MODELS: Mapping[str, type[BaseModel]] = {
    "algorithm": ObjectiveOptions,
    "algorithm.erl": ErlOptions,
    "algorithm.sdpo": SdpoOptions,
    "refine": RefineSettings,
    "run": RunSettings,
    "data.mixture": MixtureSettings,
    "judge": JudgePolicy,
    "judge.breaker": BreakerSettings,
    "role": Endpoint,
}
CHOICES = {
    "algorithm.objective": "name of an objective",
    "algorithm.agent_version": "`default`, `copy`, or null",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "true or false, or null on a CPU",
    "model.enable_gradient_checkpointing": "true or false, or null on a CPU",
}
OPEN = ("tasks", "data.apply_chat_template_kwargs", "judge.by_task", "judge.canary", "judge.jury")  # any key below them


@dataclass(frozen=True)
class Key:
    """One key of a YAML file: its dotted name, its value there, and the comment beside or above it."""

    name: str
    value: Any
    comment: str


def keys(file: Path, section: str = "") -> list[Key]:
    """The keys of a config file, in its order; `defaults` is Hydra's and left out."""
    text = file.read_text(encoding="utf-8")
    root = yaml.compose(text)
    assert root is not None, file
    return [key for key in _leaves(root, text.splitlines(), section) if not key.name.startswith("defaults")]


def _leaves(node: yaml.Node, lines: Sequence[str], name: str) -> Iterator[Key]:
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        full = f"{name}.{key.value}" if name else key.value
        if isinstance(value, yaml.MappingNode) and value.value and full not in OPEN[1:]:
            yield from _leaves(value, lines, full)
        else:
            yield Key(full, yaml.safe_load(yaml.serialize(value)), _comment(lines, key.start_mark.line))


def _comment(lines: Sequence[str], number: int) -> str:
    """The comment at the end of a line, else the lines of comment directly above it."""
    beside = re.search(r"\s#\s+(.*)$", lines[number])
    if beside:
        return beside[1]
    indent = re.match(r" *", lines[number])
    above: list[str] = []
    while indent and number > 0 and lines[number - 1].startswith(f"{indent[0]}# "):
        number -= 1
        above.insert(0, lines[number].removeprefix(f"{indent[0]}# "))
    return " ".join(above)


@cache
def meanings() -> dict[str, dict[str, str]]:
    """Meanings of the keys without a comment, for RL and for SFT."""
    read: dict[str, dict[str, str]] = yaml.safe_load(MEANINGS.read_text(encoding="utf-8"))
    return read


def meaning(key: Key, kind: str) -> str:
    """One line on what the key does.

    Raises:
        LookupError: the key has no comment and no entry in docs/config_meanings.yaml.
    """
    text = meanings()[kind].get(key.name) or key.comment
    if not text:
        raise LookupError(f"{key.name} has no comment in its YAML file: say what it does in {MEANINGS.name} ({kind})")
    return text.replace("|", "\\|").replace("<", "&lt;")


def type_of(key: Key, kind: str) -> str:
    """What the key takes: from the tables of numbers and rules, its pydantic field, or its default."""
    number = (RL_NUMBERS if kind == "rl" else SFT_NUMBERS).get(key.name)
    if number is not None:
        return _short(number)
    for rule in RL_RULES if kind == "rl" else SFT_RULES:
        choice = re.match(r"use (one|some) of ([^.]*)", rule.why) if isinstance(rule.why, str) else None
        if rule.key == key.name and choice:
            names = ", ".join(f"`{name}`" for name in choice[2].split(", "))
            return names if choice[1] == "one" else f"list of {names}"
    if key.name in CHOICES:
        return CHOICES[key.name]
    section, _, last = key.name.rpartition(".")
    if kind == "rl" and section in MODELS and last in MODELS[section].model_fields:
        return _field_type(MODELS[section].model_fields[last])
    if key.name in TEXTS:
        return "text or list of texts"
    kinds = {bool: "true or false", int: "whole number", float: "number", list: "list", dict: "section", str: "text"}
    if isinstance(key.value, str) and re.fullmatch(r"\d+e-\d+", key.value):  # YAML 1.1 reads 1e-5 as a text
        return "number"
    return kinds.get(type(key.value), "text or null")


def _short(number: Number) -> str:
    return str(number).removeprefix("a ")


def _field_type(field: FieldInfo) -> str:
    arguments = [part for part in get_args(field.annotation) if part is not type(None)]
    null = ", or null" if type(None) in get_args(field.annotation) else ""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    plain = arguments[0] if null and len(arguments) == 1 else field.annotation
    names: dict[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    name = names.get(plain) or ("section" if get_origin(plain) in (dict, Mapping) else "list")
    signs = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}
    bounds = [
        f"{words} {value:g}"
        for part in field.metadata
        for sign, words in signs.items()
        if (value := getattr(part, sign, None)) is not None
    ]
    return " ".join([name, *bounds]) + null


def default_of(key: Key, kind: str) -> str:
    """The default as Hydra takes it; of an endpoint the value that null stands for."""
    value = key.value
    if key.name.startswith("role.") and value is None:
        value = Endpoint.model_fields[key.name.removeprefix("role.")].default
    return f"`{hydra(value)}`" if value != "???" else "required"


def hydra(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(hydra, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}: {hydra(inner)}" for name, inner in value.items()) + "}"
    return str(value)


def table(shown: Sequence[Key], kind: str, strip: str = "") -> str:
    """A table of keys: name, type and range, default, meaning."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in shown:
        default = default_of(key, kind).replace("|", "\\|")
        rows.append(f"| `{key.name.removeprefix(strip)}` | {type_of(key, kind)} | {default} | {meaning(key, kind)} |")
    return "\n".join(rows)


def sections(file: Path, kind: str, level: str) -> Iterator[str]:
    """A heading and a table for each top-level section of a file, in its order; a section that comes twice is one."""
    of_section: dict[str, list[Key]] = {}
    for key in keys(file):
        if not (key.name.startswith("role") or key.name.startswith("tasks.")):
            of_section.setdefault(key.name.split(".")[0], []).append(key)
    for name, shown in of_section.items():
        yield f"{level} {name}" + (" (SFT)" if kind == "sft" else "")
        yield table(shown, kind)


def composed(folder: Path, config: str, platform: str) -> Any:
    """The config that Hydra composes for a platform, verl's own keys included, with its references as they stand."""
    return OmegaConf.to_container(compose_config(str(folder), config, [f"platform={platform}"]), resolve=False)


def value_in(config: Any, name: str) -> str:
    """The value of a dotted key as Hydra takes it; "not set" where the key is not there."""
    for part in name.split("."):
        if not isinstance(config, dict) or part not in config:
            return "not set"
        config = config[part]
    return f"`{hydra(config)}`"


def platforms(folder: Path, config: str, kind: str) -> str:
    """The keys that `platform=` sets, with the values of both."""
    found = [key for name in ("gpu", "cpu") for key in keys(folder / "platform" / f"{name}.yaml")]
    plain_first = sorted(found, key=lambda key: "${" in str(key.value))  # a reference says nothing of the type
    both = [composed(folder, config, platform) for platform in ("gpu", "cpu")]
    rows = ["| key | type | gpu | cpu | meaning |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(key.name for key in found):
        key = next(key for key in plain_first if key.name == name)
        values = " | ".join(value_in(values, name) for values in both)
        rows.append(f"| `{name}` | {type_of(key, kind)} | {values} | {meaning(key, kind)} |")
    return "\n".join(rows)


def recipes() -> str:
    """What `run_rl.sh` and the paper's recipe change."""
    names = dict.fromkeys(key.name for file in (RL / "run_rl.yaml", RECIPE) for key in keys(file))
    both = [composed(RL, "run_rl", "gpu"), composed(RECIPE.parent, RECIPE.stem, "gpu")]
    rows = ["| key | `bash run_rl.sh` | `bash recipe/ditto/run_rl.sh` |", "|---|---|---|"]
    rows += [f"| `{name}` | {' | '.join(value_in(values, name) for values in both)} |" for name in names]
    return "\n".join(rows)


def task_options() -> str:
    """The options of the tasks: the arguments of their classes."""
    of_option: dict[tuple[str, str], list[str]] = {}
    for name in tasks.names():
        for option in inspect.signature(type(tasks.load(name))).parameters.values():
            of_option.setdefault((option.name, hydra(option.default)), []).append(name)
    comments = {key.name: key.comment for key in keys(RL / "trainer.yaml")}
    rows = ["| option | default | tasks | meaning |", "|---|---|---|---|"]
    for (name, default), names in of_option.items():
        key = Key(f"tasks.*.{name}", None, comments.get(f"tasks.{names[0]}.{name}", ""))
        shown = f"tasks.{names[0] if len(names) == 1 else 'TASK'}.{name}"
        rows.append(f"| `{shown}` | `{default}` | {', '.join(names)} | {meaning(key, 'rl')} |")
    return "\n".join(rows)


def page() -> str:
    """The page."""
    role = keys(RL / "role" / "unset.yaml", "role")
    parts = [
        "<!-- Made by docs/config_page.py from the configs and docs/config_meanings.yaml. Do not edit this page. -->",
        "# Configuration",
        INTRODUCTION,
        "## Training with DITTO or GRPO",
        "`verl/ditto/config/trainer.yaml` holds these values. Keys that are not listed are verl's own and keep verl's "
        "defaults.",
        *sections(RL / "trainer.yaml", "rl", "###"),
        "### judge, feedback, partner, environment",
        "Each role is a section with the same keys, for example `partner.model=...`. A role's `null` takes the judge's "
        "value; the default below is what the judge's own `null` stands for. [judge.md](judge.md) says which settings "
        "a role inherits.",
        table(role, "rl", "role."),
        "### Options of the tasks",
        "An evaluation takes the same options.",
        task_options(),
        "### platform",
        "`PLATFORM=gpu` or `PLATFORM=cpu` (`platform=...` for Hydra) picks one of two sets of values.",
        platforms(RL, "trainer", "rl"),
        "### What the launchers change",
        recipes(),
        "## Supervised training",
        "`sft/config/sft.yaml` holds these values; `bash run_sft.sh` uses them.",
        *sections(SFT / "sft.yaml", "sft", "###"),
        "### platform (SFT)",
        platforms(SFT, "sft", "sft"),
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """\
Every value is a Hydra override after the task's name: `bash recipe/ditto/run_rl.sh hitom refine.when=failed`. An
override wins over the launchers' variables, and these win over the config files. `python train_ppo.py --cfg` and
`python train_sft.py --cfg` print all keys, verl's included.

`DRY_RUN=1` checks all values before anything starts. It refuses a key that no code reads, a value of the wrong type or
outside its range, and values that do not work together. It then ends with exit code 2 and names the key to use instead.

A list is written `[a,b]`, a section `{a: 1, b: 2}`; quote both for the shell. Hydra wants a plus before a key that the
config does not have yet, and before a section with such keys: `+data.apply_chat_template_kwargs.NAME=...`. Settings of
single tasks need none: `tasks.hitom.strict_answers=true`, `data.mixture.weights={sotopia: 2}`. `null` means that
no value is set."""


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = Parser(prog="python docs/config_page.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page is old")
    check = parser.parse_args(arguments).check
    wanted = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{PAGE.relative_to(ROOT)}: {'is old' if check else 'written'}")
    if not check:
        PAGE.write_text(wanted, encoding="utf-8")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
