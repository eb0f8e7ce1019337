"""DITTO on verl: reinforcement learning with verbal feedback, as a plug-in for verl 0.9.x.

    launch.py        train_ppo.py's main: compose the config, check it, train
    padded_loss.py   the loss of any objective for a trainer of your own: `ditto.loss`
    preflight.py     checks before any engine starts, and the plan of a step
    driver.py        start the trainer's actor, pass signals on, name the cause of its end
    task_runner.py   the Ray actor that runs the trainer
    trainer.py       the DITTO trainer; old_log_probs.py and validation.py are parts of it
    trainer_modes.py the trainers of the three modes
    settings.py      our sections of the config, validated
    objectives/      which sequences are trained, with which advantage and loss
    batch/           the step's batch: sequences, mini-batches, packing
    rollout/         agent loop, token seat, replay buffer, weight-sync alarm
    rows/            dataset, task mixture, prompt lengths
    judging/         judge plan, the actor that asks the judges, reasons to stop a run
    run/             run folder, checkpoints, locks, signals, watchdog
    model/           attention, output head and engine of the trained model; checks of a model folder
    memory/          memory plan of GPUs, or of a machine without one
    launching/       command line, launcher variables, Ray cluster
    config/          Hydra configs
    config_checks/   checks of the composed config
    verl_hooks/      what verl loads: plug-in entry point, CPU platform, patches

Importing this package imports nothing else until you ask for a name of `padded_loss.py`. verl loads
`verl_hooks/plugin.py` in every process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ditto.padded_loss import BadBatch, Clipping, Sequence, divergence, loss

__all__ = ["BadBatch", "Clipping", "Sequence", "divergence", "loss"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ditto' has no attribute {name!r}")
    from ditto import padded_loss

    return getattr(padded_loss, name)
