"""Run the trainer's actor: pass signals on to it, and turn whatever ends it into one error with its cause."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig
from ray.exceptions import RayError, RayTaskError

from ditto.launching import ray_cluster
from ditto.run import checkpoint, stop_request
from ditto.run.stop_signals import Stopped, StopSignals
from soul.errors import RunFailed

LOOK_S = 0.2  # between two looks at the signals


def train(config: DictConfig) -> None:
    """Connect to Ray, train, and leave Ray with no process behind.

    Raises:
        Stopped: by a signal; its reason says what became of the step under way.
        RunFailed: an actor died.
        Exception: what the trainer raised.
    """
    from ditto.settings import Settings
    from ditto.task_runner import remote_runner
    from soul.judge.ledger import Ledger

    settings = Settings.from_config(config)
    started = time.time()
    with StopSignals() as signals:
        try:
            ray_cluster.connect(config)
            spent = Ledger.load(settings.ledger_file).total().cost_usd
            limits = ray_cluster.start_limits(settings.gateway, spent)  # lives as long as this name
            signals.only_note()
            runner = remote_runner(config).remote()  # ends with its last handle
            wait_for(runner.run.remote(config), signals, settings.run.save_on_signal_s)
            del limits
            if config.ray_kwargs.get("timeline_json_file"):
                ray.timeline(filename=config.ray_kwargs.timeline_json_file)
        except RayError as error:
            raise cause_of(error, settings.run_dir, started) from error
        finally:
            signals.only_note()
            ray_cluster.disconnect()


def wait_for(run: Any, signals: StopSignals, save_s: float, clock: Callable[[], float] = time.time) -> None:
    """Wait for the trainer's end.

    Args:
        run: reference to its result.
        save_s: seconds that it has to finish its step and save after a signal.

    Raises:
        Stopped: a signal arrived. Its reason says what became of the step.
        RayError: what the trainer raised, or that it died.
    """
    save_until: float | None = None
    while not ray.wait([run], timeout=LOOK_S)[0]:
        if len(signals.received) > 1:
            raise Stopped(signals.received[0], " at once by a second signal; the step under way is dropped")
        if not signals.received:
            continue
        if save_until is None:
            if not stop_request.steps_have_begun():
                raise Stopped(signals.received[0])
            save_until = clock() + save_s
            stop_request.ask(save_until)
            print(
                f"Ending the step and saving a checkpoint, for {save_s:.0f} s at most (run.save_on_signal_s). A second "
                "signal ends the run at once.",
                flush=True,
            )
        elif clock() > save_until:
            raise Stopped(
                signals.received[0],
                f"; the step under way did not end within run.save_on_signal_s={save_s:.0f} s and is dropped",
            )
    if not signals.received:
        ray.get(run)
        return
    try:
        ray.get(run)
    except RayError as error:
        if not isinstance(_unwrapped(error), RayError):
            raise  # the trainer's own error says more than the signal
        # The signal went to an actor too, or to a cluster that we do not shield.
        raise Stopped(signals.received[0], "; the step under way is dropped") from error
    raise Stopped(signals.received[0], " after the step under way" if save_until else "")


def cause_of(error: RayError, run_dir: Path, started: float) -> Exception:
    """What really happened, without Ray's wrapping; `RunFailed` where Ray itself reports the death of a process.

    Args:
        started: when the run began, in seconds of the epoch; an older failure.json is another run's.
    """
    cause = _unwrapped(error)
    if not isinstance(cause, RayError):
        return cause
    failure = run_dir / "failure.json"
    if failure.exists() and failure.stat().st_mtime >= started:
        cause_text = json.loads(failure.read_text(encoding="utf-8"))["cause"]
        return RunFailed(f"{cause_text}. See {failure}. The same command goes on from the last checkpoint.")
    first_lines = " ".join(str(cause).split())[:400]
    return RunFailed(
        f"A process of the training died: {first_lines} The same command goes on from the last checkpoint."
    )


def _unwrapped(error: Exception) -> Exception:
    """What was raised, where one actor after another passed it on."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    return error


def farewell(stop: Stopped, config: DictConfig) -> str:
    """The one line after a signal: what is saved, and where the same command goes on."""
    root = Path(config.trainer.default_local_dir).absolute()
    return f"Stopped by {stop.name}{stop.reason}. {checkpoint.resume_hint(root)}"
