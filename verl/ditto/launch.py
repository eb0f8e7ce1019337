"""What `train_ppo.py` does: compose the config, check it, train. A user's mistake ends as one paragraph.

Checks come first and need no engine, and verl is imported only afterwards: a dry run takes seconds.
"""

from __future__ import annotations

import sys
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agents.errors import SoulError
from ditto.compose import COMPOSITION_ERRORS, CONFIG_DIR, compose_config
from ditto.settings import BadConfig

USER_ERROR = 2


def load_config(overrides: list[str], program: str = "train_ppo.py") -> DictConfig:
    """Compose the config from command-line words: `--config-dir DIR`, `--config-name NAME`, and Hydra overrides.

    Args:
        program: which lists the keys with `--cfg`.

    Raises:
        BadConfig: an unknown key, a malformed override, a missing value.
    """
    directory, name, words = str(CONFIG_DIR), "trainer", []
    arguments = iter(overrides)
    for word in arguments:
        if word in ("--config-dir", "--config-name"):
            value = next(arguments, "")
            directory, name = (value, name) if word == "--config-dir" else (directory, value)
        else:
            words.append(word)
    try:
        config = compose_config(directory, name, words)
        OmegaConf.resolve(config)
    except COMPOSITION_ERRORS as error:
        raise BadConfig(f"{_one_paragraph(error)} All keys are listed by: python {program} --cfg") from error
    if "gateway" in config:
        raise BadConfig("gateway is what the launcher makes of judge, feedback, partner and environment: set those.")
    return config


def _one_paragraph(error: BaseException) -> str:
    text = " ".join(str(error).split())
    cause = " ".join(str(error.__cause__).split()) if error.__cause__ else ""
    return f"The config cannot be built: {text} {cause if cause not in text else ''}".rstrip()


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 2 where the user can mend it."""
    try:
        if "--cfg" in arguments:
            print(OmegaConf.to_yaml(load_config([a for a in arguments if a != "--cfg"])))
            return 0
        config = load_config(arguments)
        from ditto.preflight import check

        plan = check(config)
        print(plan.text())
        if config.get("dry_run"):
            return 0
        limits = _connect(config)
    except SoulError as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return USER_ERROR
    _train(config, limits)
    return 0


def _connect(config: DictConfig) -> Any:
    """Settle the config for workers, connect to Ray, and start the actor that holds the run's judge limits and keys.

    Returns:
        The actor, which ends with its last handle in this process.
    """
    from ditto import plugin

    plugin.require(config.trainer.device)
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from agents.judge.ledger import Ledger
    from ditto import ray_cluster, worker_config
    from ditto.settings import Settings

    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    worker_config.settle(config)
    ray_cluster.connect(config)
    settings = Settings.of(config)
    return ray_cluster.start_limits(settings.gateway, Ledger.load(settings.ledger_file).total().cost_usd)


def _train(config: DictConfig, limits: Any) -> None:  # `limits` is only held, so that the actor lives
    import ray
    from verl.trainer.main_ppo import run_ppo

    from ditto.task_runner import remote_runner

    try:
        run_ppo(config, task_runner_class=remote_runner())
    finally:
        ray.shutdown()
        _print_bill(config)


def _print_bill(config: DictConfig) -> None:
    """What the run spent on its judges, however it ended."""
    from rich.console import Console

    from agents.judge.ledger import Ledger, table
    from ditto.settings import Settings

    ledger = Ledger.load(Settings.of(config).ledger_file)
    if ledger.tasks:
        Console(width=max(110, Console().width)).print(table(ledger))
