"""Compose the Hydra config: verl's files, ours, the launchers' variables, then the overrides of the command line."""

import importlib.util
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ditto.config_checks.keys import DEFAULTS, INSTEAD, RL_KEYS
from ditto.launching.override_parser import Program, check_keys, checked, refuse_secrets
from ditto.launching.variables import rl_words, sft_words
from ditto.policies import name_adapters
from ditto.settings import BadConfig
from soul.errors import one_line

CONFIG_DIR = Path(__file__).parents[1] / "config"
SEPARATE = "ditto_separate_async"  # the mode in which rollouts have devices of their own
LENGTHS = {"max_prompt_length": 8192, "max_feedback_length": 1024, "max_response_length": 8192}  # the paper's
SFT_LENGTHS = {"max_prompt_length": 16384, "max_response_length": 8192}
STEP = 64  # a shortened length is a multiple of it
ConfigStore.instance().store("ours", DEFAULTS)  # config/trainer.yaml builds on it


def compose_config(directory: str, name: str, words: list[str]) -> DictConfig:
    """Compose a config. Interpolations (`${...}`) are not resolved yet.

    Args:
        directory: the folder of `<name>.yaml`; our config folder and verl's are searched too.
        words: Hydra overrides.
    """
    search = [CONFIG_DIR, package_dir("verl") / "trainer" / "config"]
    paths = ",".join(f"file://{path}" for path in search)
    with initialize_config_dir(str(Path(directory).absolute()), version_base=None):
        config: DictConfig = compose(name, [*words, f"hydra.searchpath=[{paths}]"])
    return config


TRAIN_PPO = Program("train_ppo.py", CONFIG_DIR, "trainer", RL_KEYS, INSTEAD)


def load_config(overrides: list[str], program: Program = TRAIN_PPO) -> DictConfig:
    """The resolved config of a command line: our own options, and Hydra overrides.

        --config-dir DIR, --config-name NAME    the config file
        --task TASK                             read the variables of run_rl.sh, for these tasks
        --launcher sft                          read the variables of run_sft.sh

    Raises:
        BadConfig: a key that nothing reads, a malformed override, a missing value, or an API key in an override.
        SoulError: an environment variable has an invalid value.
    """
    refuse_secrets(overrides)
    options, words = _options(overrides)
    if "--task" in options:
        words = [*rl_words(options["--task"], os.environ), *words]
    if options.get("--launcher") == "sft":
        words = [*sft_words(os.environ), *words]
    words = checked(words, program)
    directory, name = Path(options.get("--config-dir", program.directory)), options.get("--config-name", program.config)
    if not directory.is_dir():
        raise BadConfig(f"--config-dir={directory}: there is no such folder.")
    if not (directory / f"{name}.yaml").is_file():
        raise BadConfig(f"--config-name={name}: there is no file {name}.yaml in {directory}.")
    try:
        if directory.resolve() not in (CONFIG_DIR, program.directory):
            _check_file(directory, name, program)
        config = compose_config(str(directory), name, words)
        fill_lengths(config)
        name_adapters(config)
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, RecursionError, YAMLError) as error:
        references = [word.lstrip("+") for word in words if "${" in word and "nterpolation" in str(error)]
        where = f" These overrides contain references: {' '.join(references)}." if references else ""
        raise BadConfig(f"{_one_paragraph(error)}{where} To list all keys: python {program.script} --cfg") from error
    return config


def _check_file(directory: Path, name: str, program: Program) -> None:
    """Check the keys of a user's config file, and of the files beside it that it builds on."""
    values = yaml.safe_load((directory / f"{name}.yaml").read_text(encoding="utf-8")) or {}
    for base in values.pop("defaults", []):
        if isinstance(base, str) and (directory / f"{base}.yaml").is_file():
            _check_file(directory, base, program)
    check_keys(values, program)


_OPTIONS = ("--config-dir", "--config-name", "--task", "--launcher")


def _options(overrides: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split a command line into our options (name -> value) and all other words."""
    options: dict[str, str] = {}
    words: list[str] = []
    arguments = iter(overrides)
    for word in arguments:
        if word not in _OPTIONS:
            words.append(word)
        elif not (value := next(arguments, "")):
            raise BadConfig(f"{word} needs a value after it.")
        else:
            options[word] = value
    return options, words


def _one_paragraph(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "The config cannot be composed: a value refers to itself (${...})."
    text = one_line(error)
    key = getattr(error, "full_key", None)
    text = f"{key}: {text}" if key and key not in text else text
    cause = one_line(error.__cause__) if error.__cause__ else ""
    return f"The config cannot be composed: {text} {cause if cause not in text else ''}".rstrip()


def fill_lengths(config: DictConfig) -> None:
    """Replace each null among the lengths of a config, which is not resolved yet.

    The lengths that are given stay. The others share what is left of the model's context in the proportions of the
    defaults.
    """
    if "data" not in config:
        return
    model, lengths = ("actor_rollout_ref.", LENGTHS) if "actor_rollout_ref" in config else ("", SFT_LENGTHS)
    given = {name: OmegaConf.select(config, f"data.{name}", throw_on_missing=False) for name in lengths}
    wanted = {name: lengths[name] for name, value in given.items() if value is None}
    positions = _positions(OmegaConf.select(config, f"{model}model.path", throw_on_missing=False))
    numbers = [value for value in given.values() if isinstance(value, int)]
    rest = positions - sum(numbers) if positions else sum(wanted.values())
    total = sum(wanted.values())
    for name, length in wanted.items():
        shorter = rest * length // max(total, 1) // STEP * STEP
        # Without room, the paper's length stays, and the check of the model's context says what to lower.
        OmegaConf.update(config, f"data.{name}", length if rest >= total or shorter < STEP else shorter)


def _positions(path: Any) -> int | None:
    """The context of the model in a folder, in tokens; None if it cannot be read there."""
    file = Path(str(path)).expanduser() / "config.json"
    try:
        model = json.loads(file.read_text(encoding="utf-8"))
        limit = (model.get("text_config") or model).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None  # a damaged folder is reported when the tokenizer is loaded
    return limit if isinstance(limit, int) and limit > 0 else None


@cache
def default_config(platform: str) -> DictConfig:
    """The trainer's config without overrides, unresolved. Do not modify it: all callers share one object."""
    return compose_config(str(CONFIG_DIR), "trainer", [f"platform={platform}"])


def package_dir(name: str) -> Path:
    """The folder of an installed package, found without importing it (importing verl takes ten seconds)."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BadConfig(f"{name} is not installed in this environment. Run bash scripts/env.")
    return Path(list(spec.submodule_search_locations)[0])


# `${plus:1,2}` adds numbers, `${times:2,3}` multiplies them; `${if_separate:mode,a,b}` is a if rollouts have devices of
# their own in that mode, else b; `${if_one:n,a,b}` is a if n is 1, else b; `${installed:package,file}` is the path of a
# file inside an installed package.
OmegaConf.register_new_resolver("plus", lambda *numbers: sum(map(int, numbers)), replace=True)
OmegaConf.register_new_resolver("times", lambda a, b: int(a) * int(b), replace=True)
OmegaConf.register_new_resolver("if_separate", lambda mode, a, b: a if mode == SEPARATE else b, replace=True)
OmegaConf.register_new_resolver("if_one", lambda n, a, b: a if int(n) == 1 else b, replace=True)
OmegaConf.register_new_resolver("installed", lambda package, file: str(package_dir(package) / file), replace=True)
