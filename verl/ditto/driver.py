"""The driver: run the trainer's actor, pass signals on to it, and raise one error with its cause if it fails."""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from omegaconf import DictConfig
from ray.exceptions import RayError, RayTaskError

from ditto.launching import ray_cluster
from ditto.run import run_json, stop_signals
from ditto.run.run_folder import FAILURE, write_failure
from ditto.run.stop_signals import Stopped, StopSignals, signal_name
from soul.errors import RunFailed, one_line

logger = logging.getLogger(__name__)

_REMEDY = "Run the same command again to continue from the last checkpoint."
POLL_S = 0.2  # seconds between two checks for signals
HEAD_CHECK_S = 5.0  # between two connections to Ray's head
HEAD_GONE_S = 30.0  # without the head; after 60 s Ray itself ends this process, without a word


class HeadLost(RunFailed):
    """Ray's head process (gcs_server) is gone, and the cluster with it."""


def train(config: DictConfig) -> None:
    """Connect to Ray, train, and disconnect without leaving a process behind.

    Raises:
        Stopped: a signal ended the run; its reason says what happened to the current step.
        RunFailed: an actor died.
        Exception: whatever the trainer raised.
    """
    from ditto.settings import Settings
    from ditto.task_runner import remote_runner
    from soul.judge.ledger import Ledger

    settings = Settings.from_config(config)
    started = time.time()
    with StopSignals() as signals:
        try:
            ray_cluster.connect(config)
            run_json.write(config, hosts=sum(node["Alive"] for node in ray.nodes()))
            spent = Ledger.load(settings.ledger_file).total().cost_usd
            # The actor lives as long as this reference.
            judge = ray_cluster.start_judge(settings.gateway, spent, settings.cache_dir)
            signals.only_record()
            runner = remote_runner().remote()  # the actor ends with its last handle
            head = HeadWatch(ray.get_runtime_context().gcs_address)
            wait_for(runner.run.remote(config), signals, settings.run.save_on_signal_s, head=head.check)
            del judge
        except RayError as error:
            cause = cause_of(error, settings.run_dir, started)
            if not _ended_by_watchdog(settings.run_dir, started):
                write_failure(settings.run_dir, str(cause))
            raise cause from error
        except HeadLost as error:
            write_failure(settings.run_dir, str(error))
            stop_signals.kill(stop_signals.processes_below())  # ray.shutdown would wait for the head
            raise
        finally:
            signals.only_record()
            ray_cluster.disconnect()


class HeadWatch:
    """Connects to Ray's head every few seconds.

    Args:
        address: HOST:PORT of its gcs_server.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._checked = self._answered = time.monotonic()

    def check(self) -> None:
        """Warn when the head does not answer. Raises HeadLost after HEAD_GONE_S without an answer."""
        now = time.monotonic()
        if now - self._checked < HEAD_CHECK_S:
            return
        self._checked = now
        try:
            ray_cluster.check_reachable(self._address)
        except OSError as error:
            logger.warning("Ray's head process (gcs_server) does not answer: %s", error)
            if now - self._answered > HEAD_GONE_S:
                raise HeadLost(
                    f"Ray's head process (gcs_server) at {self._address} has been gone for {HEAD_GONE_S:g} s. It was "
                    f"killed, or its machine ran out of memory (`dmesg` says so). {_REMEDY}"
                ) from None
        else:
            self._answered = now


def wait_for(
    run: Any,
    signals: StopSignals,
    save_s: float,
    clock: Callable[[], float] = time.time,
    head: Callable[[], None] = lambda: None,
) -> None:
    """Wait until the trainer ends.

    Args:
        run: Ray reference to the trainer's result.
        save_s: seconds that the trainer has to finish its step and save a checkpoint after a signal.
        head: checks the cluster's head at each poll.

    Raises:
        Stopped: a signal arrived; its reason says what happened to the current step.
        RayError: the trainer raised an exception or died.
    """
    save_until: float | None = None
    while not ray.wait([run], timeout=POLL_S)[0]:
        head()
        if not signals.received:
            continue
        first = signals.received[0]
        if len(signals.received) > 1:
            raise Stopped(first, " at once by a second signal; the current step is dropped")
        if save_until is None:
            if not stop_signals.has_begun():
                raise Stopped(first)
            save_until = clock() + save_s
            stop_signals.request_stop(save_until)
            what = f"for at most {save_s:.0f} s (run.save_on_signal_s). A second signal ends the run at once"
            logger.warning("%s: finishing the current step and saving a checkpoint, %s", signal_name(first), what)
        elif clock() > save_until:
            raise Stopped(
                first, f"; the current step did not end within run.save_on_signal_s={save_s:.0f} s and is dropped"
            )
    if not signals.received:
        ray.get(run)
        return
    try:
        ray.get(run)
    except RayError as error:
        if not isinstance(_unwrapped(error), RayError):
            raise  # the trainer's own error is more informative than the signal
        # An actor died: it got the signal too, perhaps in a cluster that this driver did not start.
        raise Stopped(signals.received[0], "; the current step is dropped") from error
    raise Stopped(signals.received[0], " after the current step" if save_until else "")


def cause_of(error: RayError, run_dir: Path, started: float) -> Exception:
    """The exception behind Ray's wrappers, or `RunFailed` if Ray reports that a process died.

    Args:
        started: when the run started, in seconds since the epoch; an older failure.json belongs to another run.
    """
    cause = _unwrapped(error)
    if not isinstance(cause, RayError):
        return cause
    if _ended_by_watchdog(run_dir, started):
        failure = run_dir / FAILURE
        cause_text = json.loads(failure.read_text(encoding="utf-8"))["cause"]
        return RunFailed(f"{cause_text}. See {failure}. {_REMEDY}")
    first_lines = one_line(cause, 400)
    return RunFailed(f"A process of the training died: {first_lines} {_REMEDY}")


def _ended_by_watchdog(run_dir: Path, started: float) -> bool:
    failure = run_dir / FAILURE
    return failure.exists() and failure.stat().st_mtime >= started


def _unwrapped(error: Exception) -> Exception:
    """The original exception, behind the wrappers of all actors that passed it on."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    return error
