"""Write docs/configuration.md: every key of ours with type, range, default and meaning, from the tables of the code.

    python docs/config_page.py            # write the page
    python docs/config_page.py --check    # exit code 1 where the page is not what the code says

Type, range and meaning come from `ditto/config_checks/keys.py` and `sft/config_checks.py`, the defaults from the
composed configs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.key_types import Key, Keys, describe, shown
from ditto.config_checks.keys import CHECKPOINT, ENGINE, MODEL, OPTIMIZER, RL_KEYS
from ditto.launching.compose import CONFIG_DIR, compose_config
from sft.config_checks import CONFIG_DIR as SFT_DIR
from sft.config_checks import SFT_KEYS
from soul import tasks
from soul.cli.error_border import Parser, reports_errors
from soul.judge import ROLES
from soul.judge.call.endpoint import Endpoint

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configuration.md"
TASK_OPTIONS = {
    "reward": (
        "mean: the paper's score, the mean of the seven raw scores / 10; weighted: the original's reward, 0 to 1. Both "
        "are metrics in any case."
    ),
    "seats": (
        "one: an API model plays the other person; both: a policy plays it too, with its own goal, verdict and "
        "critique ([two policies](two_policies.md))."
    ),
    "hide": (
        "In training, share of the dimensions (all but believability) that the judge is not asked for, drawn by row "
        "and step, the same for a whole group. A hidden one counts as 0. Evaluation and validation hide none."
    ),
    "judge_samples": (
        "Samples of each judgment; null takes as many as the published runs (six calls per episode), 1 needs three."
    ),
    "strict_answers": "Accept an answer only in the exact form that the prompt asks for.",
}


def composed(folder: Path, name: str, platform: str) -> DictConfig:
    """The config of a platform, with its references as they stand."""
    return compose_config(str(folder), name, [f"platform={platform}"])


def value_in(config: DictConfig, name: str) -> str:
    """The value of a key as Hydra takes it; "required" where the user gives it, "not set" where the key is absent."""
    values: Any = OmegaConf.to_container(config, resolve=False)
    for part in name.split("."):
        if not isinstance(values, dict) or part not in values:
            return "not set"
        values = values[part]
    return "required" if values == "???" else f"`{shown(values)}`"


def defaults_of(both: Sequence[DictConfig], name: str) -> str:
    """The default on a GPU, and the one on a CPU where that is another one."""
    gpu, cpu = (value_in(config, name) for config in both)
    return gpu if gpu == cpu else f"{gpu}; on a CPU {cpu}"


def table(rows: Mapping[str, tuple[Key, str]]) -> str:
    """A table of keys: name, type and range, default, meaning."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, (key, default) in rows.items():
        cells = (f"`{name}`", describe(key.type), default, key.meaning.replace("<", "&lt;"))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def sections(keys: Keys, both: Sequence[DictConfig], suffix: str = "", without: Sequence[str] = ()) -> Iterator[str]:
    """A heading and a table for each top-level section with documented keys, in their order."""
    of_section: dict[str, dict[str, tuple[Key, str]]] = {}
    for name, key in keys.items():
        if key.meaning and name not in without:
            of_section.setdefault(name.partition(".")[0], {})[name] = (key, defaults_of(both, name))
    for section, rows in of_section.items():
        yield f"### {section}{suffix}"
        yield table(rows)


def roles() -> str:
    """The settings of a role; the default is what the judge's null stands for."""
    rows = {}
    for name, field in Endpoint.model_fields.items():
        if field.description:
            rows[name] = (RL_KEYS[f"judge.{name}"], f"`{shown(field.default)}`")
    return table(rows)


def task_options() -> str:
    """The options of the tasks: the arguments of their classes."""
    of_option: dict[tuple[str, str], list[str]] = {}
    for name in tasks.names():
        for argument in inspect.signature(type(tasks.load(name))).parameters.values():
            of_option.setdefault((argument.name, shown(argument.default)), []).append(name)
    rows = ["| option | default | tasks | meaning |", "|---|---|---|---|"]
    for (option, default), names in of_option.items():
        place = f"tasks.{names[0] if len(names) == 1 else 'TASK'}.{option}"
        rows.append(f"| `{place}` | `{default}` | {', '.join(names)} | {TASK_OPTIONS[option]} |")
    return "\n".join(rows)


def page() -> str:
    """The whole page."""
    rl = [composed(CONFIG_DIR, "trainer", platform) for platform in ("gpu", "cpu")]
    sft = [composed(SFT_DIR, "sft", platform) for platform in ("gpu", "cpu")]
    of_roles = [f"{role}.{name}" for role in ROLES for name in Endpoint.model_fields]
    shared = {"model": MODEL, "optim": OPTIMIZER, "engine": ENGINE, "checkpoint": CHECKPOINT}
    told = [f"{section}.{name}" for section, keys in shared.items() for name in keys]
    told += [name for name, key in SFT_KEYS.items() if name in RL_KEYS and RL_KEYS[name].meaning == key.meaning]
    parts = [
        "<!-- Made by docs/config_page.py from the tables of the code. Do not edit this page. -->",
        "# Configuration",
        INTRODUCTION,
        "## Training with DITTO or GRPO",
        *sections(RL_KEYS, rl, without=of_roles),
        "### judge, feedback, partner, environment",
        "The settings of a model that plays a role, for instance `partner.model=...`. A role's `null` takes the "
        "judge's value; the default below is what the judge's own `null` stands for. [The judge](judge.md) says which "
        "settings a role inherits.",
        roles(),
        "### Options of the tasks",
        "An evaluation takes the same options.",
        task_options(),
        "### What the launchers change",
        "`bash run_rl.sh` takes `verl/ditto/config/run_rl.yaml`: GRPO with the values of the authors' script. The "
        "recipe adds `recipe/ditto/config/ditto.yaml`: DITTO with [the paper's values](../recipe/ditto/README.md).",
        "## Supervised training",
        "`bash run_sft.sh` uses these values. The sections `model`, `optim`, `engine` and `checkpoint` hold the keys "
        "of `actor_rollout_ref.model` and of `optim`, `fsdp_config` and `checkpoint` in `actor_rollout_ref.actor`: "
        "`optim.lr` is the learning rate. Keys of `trainer`, `run` and `memory` that are listed above mean the same "
        "here. `python train_sft.py --cfg` prints all of them with their values.",
        *sections(SFT_KEYS, sft, " (SFT)", without=told),
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """\
Every value is an override after the task's name: `bash recipe/ditto/run_rl.sh hitom refine.when=failed`. An override
wins over the launchers' variables, and these win over the config files. `python train_ppo.py --cfg` and
`python train_sft.py --cfg` print every key that is read, with its value. Keys of verl that are not listed below keep
verl's defaults.

`DRY_RUN=1` checks all values before anything starts. It refuses a key that no code reads, a value of the wrong type or
outside its range, and values that do not work together. It then ends with exit code 2 and names the key to use instead.

A list is written `[a,b]`, a section `{a: 1, b: 2}`; quote both for the shell. No key needs a plus sign. `null` means
that no value is set. `PLATFORM=gpu` or `PLATFORM=cpu` picks one of two sets of defaults."""


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
