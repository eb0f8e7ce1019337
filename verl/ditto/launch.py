"""The main function of `train_ppo.py`: compose the config, check it, train. A user's mistake becomes one paragraph.

The checks need no engine, and verl is imported only after they pass, so a dry run takes seconds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from soul.cli.error_border import run_command

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from ditto.settings import Settings


def main(arguments: list[str]) -> int:
    """Run the command. Returns its exit code (see `soul.cli.error_border`)."""
    return run_command(lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    # Imported inside the error border: these imports take a while, and Ctrl-C can arrive during them.
    from ditto.launching.compose import TRAIN_PPO, load_config

    if "--cfg" in arguments:
        from ditto.config_checks.key_types import printed

        print(printed(load_config([a for a in arguments if a != "--cfg"]), TRAIN_PPO.keys))
        return 0
    config = load_config(arguments)
    from ditto.config_checks.resume import apply_resume
    from ditto.preflight import check

    print(check(config))
    if config.get("dry_run"):
        return 0
    from ditto.run.run_folder import driver_lock
    from ditto.settings import Settings

    settings = Settings.from_config(config)
    with driver_lock(settings.folders):
        apply_resume(config)
        _prepare_for_workers(config)
        return _train(config, settings)


def _prepare_for_workers(config: DictConfig) -> None:
    """Validate the config with verl, and resolve everything that a worker could resolve differently."""
    from ditto.verl_hooks import plugin

    plugin.require(config.trainer.device)
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from ditto.verl_hooks import worker_config

    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    worker_config.resolve(config)


def _train(config: DictConfig, settings: Settings) -> int:
    """Train, and print the end of a stopped run and what the run has spent on its judges, however it ended."""
    from rich.console import Console

    from ditto import driver
    from ditto.run.checkpoint import resume_hint
    from ditto.run.stop_signals import Stopped
    from soul.judge.ledger import Ledger, table

    try:
        driver.train(config)
    except Stopped as stop:
        hint = resume_hint(settings.checkpoint_dir or settings.run_dir)
        print(f"\nStopped by {stop.name}{stop.reason}. {hint}\n", file=sys.stderr)
        return stop.exit_code
    finally:
        ledger = Ledger.load(settings.ledger_file)
        if ledger.tasks:
            Console(width=max(110, Console().width)).print(table(ledger))
    return 0
