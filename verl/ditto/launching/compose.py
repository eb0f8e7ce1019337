"""Compose the Hydra config: verl's files, ours, the launchers' variables, then the overrides of the command line."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ditto.launching.context_lengths import fill_lengths
from ditto.launching.launcher_environment import rl_words, sft_words
from ditto.launching.override_words import allowing_new_tasks, check_words, refuse_secrets
from ditto.settings import BadConfig
from soul.errors import one_line

CONFIG_DIR = Path(__file__).parents[1] / "config"
SEPARATE = "ditto_separate_async"  # the mode in which rollouts have devices of their own


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


def load_config(overrides: list[str], program: str = "train_ppo.py") -> DictConfig:
    """The resolved config of a command line: our own options, and Hydra overrides.

        --config-dir DIR, --config-name NAME    the config file
        --task TASK                             read the variables of run_rl.sh, for these tasks
        --launcher sft                          read the variables of run_sft.sh

    Args:
        program: the script to name in messages; it lists all keys with `--cfg`.

    Raises:
        BadConfig: an unknown key, a malformed override, a missing value, or an API key in an override.
        SoulError: an environment variable has an invalid value.
    """
    refuse_secrets(overrides)
    options, words = _options(overrides)
    check_words(words, program)
    words = [allowing_new_tasks(word) for word in words]
    if "--task" in options:
        words = [*rl_words(options["--task"], os.environ), *words]
    if options.get("--launcher") == "sft":
        words = [*sft_words(os.environ), *words]
    directory, name = options.get("--config-dir", str(CONFIG_DIR)), options.get("--config-name", "trainer")
    if not Path(directory).is_dir():
        raise BadConfig(f"--config-dir={directory}: there is no such folder.")
    if not (Path(directory) / f"{name}.yaml").is_file():
        raise BadConfig(f"--config-name={name}: there is no file {name}.yaml in {directory}.")
    try:
        config = compose_config(directory, name, words)
        fill_lengths(config)
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
        references = [word for word in words if "${" in word]
        where = (
            f" These overrides contain references: {' '.join(references)}."
            if "nterpolation" in str(error) and references
            else ""
        )
        raise BadConfig(f"{_one_paragraph(error)}{where} To list all keys: python {program} --cfg") from error
    if "gateway" in config:
        raise BadConfig(
            "gateway cannot be set: the launcher builds it from the sections judge, feedback, partner and environment. "
            "Set those."
        )
    return config


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
