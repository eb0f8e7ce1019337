"""The driver's side of a training run: signals, the end of the trainer's actor, and who may write."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from ditto import driver
from ditto.driver import cause_of, wait_for
from ditto.judging.watch import BudgetSpent, JudgeOutage
from ditto.run import stop_signals
from ditto.run.run_folder import driver_lock, trainer_lock
from ditto.run.stop_signals import Stopped, StopSignals, shield_children
from ditto.trainer_modes import DittoTrainerSync
from soul.errors import FolderInUse, OutOfSpace, RunFailed


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (signal.SIGTERM, 143, "SIGTERM"),
        (signal.SIGINT, 130, "Ctrl-C"),
        (signal.SIGHUP, 129, "SIGHUP"),
        (signal.SIGUSR1, 138, "SIGUSR1"),
    ],
)
def test_a_signal_ends_the_start_up_and_is_noted_afterwards(number: signal.Signals, code: int, name: str) -> None:
    before = signal.getsignal(number)
    with StopSignals() as signals:
        with pytest.raises(Stopped) as stopped:
            os.kill(os.getpid(), number)
            time.sleep(5)
        assert (stopped.value.exit_code, stopped.value.name) == (code, name)
        os.kill(os.getpid(), number)  # the clean-up goes on
        assert signals.received == [number, number]
    assert signal.getsignal(number) is before


def test_rays_processes_do_not_see_the_signals_and_the_driver_sees_them_afterwards() -> None:
    program = "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); os.kill(os.getpid(), signal.SIGINT)"
    with StopSignals() as signals, pytest.raises(Stopped):
        with shield_children():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # what ray.init does
            child = subprocess.run([sys.executable, "-c", program], check=False)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # the test runner has other threads
            assert not signals.received
        time.sleep(5)
    assert child.returncode == 0
    assert signals.received == [signal.SIGTERM]


class Trainer:
    """A trainer's actor, as `ray.wait` and `ray.get` show it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: list[Any] = []  # what happens at each look; afterwards it has ended
        self.error: Exception | None = None
        self.begun = True
        self.asked: list[float] = []
        monkeypatch.setattr(driver.ray, "wait", self._wait)
        monkeypatch.setattr(driver.ray, "get", self._get)
        monkeypatch.setattr(stop_signals, "has_begun", lambda: self.begun)
        monkeypatch.setattr(stop_signals, "request_stop", self.asked.append)

    def _wait(self, runs: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        if not self.looks:
            return runs, []
        self.looks.pop(0)()
        return [], runs

    def _get(self, _run: Any) -> None:
        if self.error:
            raise self.error


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    return Trainer(monkeypatch)


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    with StopSignals() as signals:
        signals.only_record()
        yield signals


def pause() -> None:
    """Let nothing happen while the driver looks."""


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def reason(trainer: Trainer, signals: StopSignals, now: Iterator[float]) -> str:
    with pytest.raises(Stopped) as stopped:
        wait_for(object(), signals, 120.0, lambda: next(now))
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    return stopped.value.reason


def test_a_run_without_signals_ends_as_its_trainer_does(trainer: Trainer, signals: StopSignals) -> None:
    trainer.looks = [lambda: None]
    wait_for(object(), signals, 120.0)
    trainer.error = OutOfSpace("x")
    with pytest.raises(OutOfSpace):
        wait_for(object(), signals, 120.0)


def test_a_head_that_is_gone_is_said_and_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "HEAD_CHECK_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = driver.HeadWatch(f"127.0.0.1:{server.getsockname()[1]}")
        head.check()
    head.check()
    assert "(gcs_server) does not answer" in caplog.text
    monkeypatch.setattr(driver, "HEAD_GONE_S", 0.0)
    with pytest.raises(driver.HeadLost, match="has been gone"):
        head.check()


STOPS: dict[str, tuple[list[Any], bool, list[float], str, list[float]]] = {
    # what happens at each look; the first step has begun; the clock; the reason; what was asked
    "in time": ([terminate, pause, pause], True, [1000.0, 1001.0, 1120.0], " after the current step", [1120.0]),
    "too late": (
        [terminate, pause, pause, pause],
        *(True, [1000.0, 1001.0, 1120.5]),
        "run.save_on_signal_s=120 s and is dropped",
        [1120.0],
    ),
    "before the first step": ([terminate, pause], False, [], " before the first step", []),
    "a second signal": (
        [terminate, terminate, pause],
        *(True, [1000.0, 1001.0]),
        "at once by a second signal",
        [1120.0],
    ),
}


@pytest.mark.parametrize("case", STOPS)
def test_a_signal_gives_the_trainer_its_time_and_the_stop_says_what_became_of_the_step(
    case: str, trainer: Trainer, signals: StopSignals
) -> None:
    trainer.looks, trainer.begun, clock, expected, asked = STOPS[case]
    trainer.looks = list(trainer.looks)
    text = reason(trainer, signals, iter(clock))
    assert expected in text and ("dropped" in text) <= (case in ("too late", "a second signal"))
    assert trainer.asked == asked


def test_a_trainer_that_dies_by_the_signal_is_no_error_and_one_that_raises_is(
    trainer: Trainer, signals: StopSignals
) -> None:
    trainer.looks, trainer.error = [terminate, lambda: None], ActorDiedError()
    assert "is dropped" in reason(trainer, signals, iter([1000.0, 1001.0]))
    trainer.looks, trainer.error = [lambda: None], wrapped(ActorDiedError())  # a worker died, and the trainer saw it
    assert "is dropped" in reason(trainer, signals, iter([1000.0]))
    trainer.looks, trainer.error = [lambda: None], wrapped(OutOfSpace("no space left in x"))
    with pytest.raises(RayTaskError):
        wait_for(object(), signals, 120.0)


def wrapped(cause: Exception) -> RayTaskError:
    error: RayTaskError = RayTaskError("run", f"Traceback of {cause!r}", cause, "title", 1, "127.0.0.1")
    return error.as_instanceof_cause()


def test_the_cause_comes_out_of_rays_wrapping(tmp_path: Path) -> None:
    full = OutOfSpace("no space left in /x, needs about 4.0 GB")
    assert cause_of(wrapped(wrapped(full)), tmp_path, started=0.0) is full


def test_a_trainer_that_the_watchdog_ended_has_the_watchdogs_cause(tmp_path: Path) -> None:
    (tmp_path / "failure.json").write_text(json.dumps({"cause": "rollout server 0 died"}))
    failed = cause_of(ActorDiedError(), tmp_path, started=0.0)
    assert isinstance(failed, RunFailed) and "rollout server 0 died. See" in str(failed)
    failed = cause_of(ActorDiedError(), tmp_path, started=time.time() + 60)  # the file is an earlier run's
    assert "rollout server" not in str(failed) and "process of the training died" in str(failed)
    failed = cause_of(wrapped(wrapped(ActorDiedError())), tmp_path, started=time.time() + 60)  # a worker of the trainer
    assert isinstance(failed, RunFailed) and "process of the training died" in str(failed)


def test_one_driver_and_one_trainer_hold_a_runs_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ditto.run.run_folder.ORPHAN_ENDS_S", 0.0)
    first, second = ({tmp_path / name, tmp_path / "shared"} for name in ("a", "b"))
    with driver_lock(first), trainer_lock(first):
        with (
            pytest.raises(FolderInUse, match=f"{tmp_path}/shared is in use by process {os.getpid()} on host"),
            driver_lock(second),
        ):
            pass
        with driver_lock({tmp_path / "c"}):
            pass
    with trainer_lock(first):  # its driver was killed: nobody may write yet
        with pytest.raises(FolderInUse, match="trainer"), driver_lock(first):
            pass
    with driver_lock(first):
        pass


@pytest.mark.parametrize(
    ("save_until", "stop", "saved_step", "saves", "ends"),
    [
        (None, None, None, 0, False),  # nobody asked
        (1120.0, None, None, 1, True),
        (1120.0, None, 7, 0, True),  # it is saved already
        (1029.0, None, None, 0, True),  # the last checkpoint took 30 s: no time for another
        (None, JudgeOutage("the judge is down"), None, 1, True),
        (None, BudgetSpent("nothing is left"), 7, 0, True),
        (1029.0, BudgetSpent("nothing is left"), None, 0, True),
    ],
)
def test_the_trainer_saves_where_there_is_time_and_ends_after_the_step(
    monkeypatch: pytest.MonkeyPatch,
    save_until: float | None,
    stop: Exception | None,
    saved_step: int | None,
    saves: int,
    ends: bool,
) -> None:
    monkeypatch.setattr(stop_signals, "save_until", lambda: save_until)
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    trainer = object.__new__(DittoTrainerSync)
    trainer.global_steps, trainer.total_training_steps = 7, 100
    trainer.checkpoints = SimpleNamespace(written_step=saved_step, seconds=30.0)
    trainer.judges = SimpleNamespace(stop=stop)
    calls: list[int] = []
    monkeypatch.setattr(trainer, "_save_checkpoint", lambda: calls.append(1))
    trainer._end_if_due()
    assert len(calls) == saves
    assert trainer.total_training_steps == (7 if ends else 100)
