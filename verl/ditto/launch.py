"""What `train_ppo.py` does: compose the config, check it, train. A user's mistake ends as one paragraph.

Checks come first and need no engine, and verl is imported only afterwards: a dry run takes seconds.
"""

from __future__ import annotations

import sys

from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import load_config
from soul.cli.error_border import run_command


def main(arguments: list[str]) -> int:
    """Returns the exit code, as in `soul.cli.error_border`."""
    return run_command(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    if "--cfg" in arguments:
        print(OmegaConf.to_yaml(load_config([a for a in arguments if a != "--cfg"])))
        return 0
    config = load_config(arguments)
    from ditto.config_checks.resume import settle_resume
    from ditto.preflight import check

    plan = check(config)
    print(plan.text())
    if config.get("dry_run"):
        return 0
    from ditto.run.run_lock import driver_lock

    with driver_lock(config):
        settle_resume(config)
        _settle(config)
        return _train(config)


def _settle(config: DictConfig) -> None:
    """Write the config as workers get it."""
    from ditto.verl_hooks import plugin

    plugin.require(config.trainer.device)
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from ditto.verl_hooks import worker_config

    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    worker_config.settle(config)


def _train(config: DictConfig) -> int:
    from ditto.run import attended_run
    from ditto.run.stop_signals import Stopped

    try:
        attended_run.train(config)
    except Stopped as stop:
        print(f"\n{attended_run.farewell(stop, config)}\n", file=sys.stderr)
        return stop.exit_code
    finally:
        _print_bill(config)
    return 0


def _print_bill(config: DictConfig) -> None:
    """What the run spent on its judges, however it ended."""
    from rich.console import Console

    from ditto.settings import Settings
    from soul.judge.ledger import Ledger, table

    ledger = Ledger.load(Settings.from_config(config).ledger_file)
    if ledger.tasks:
        Console(width=max(110, Console().width)).print(table(ledger))
