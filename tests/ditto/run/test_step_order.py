"""A published step has its metrics, whenever a kill comes; a validation that it cut off is repeated on resume."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from ray.exceptions import ActorDiedError
from verl.trainer.ppo.v1 import PPOTrainer

import ditto.run.checkpoint_writer
from ditto.judging.watch import BudgetSpent, JudgeOutage
from ditto.objectives import OBJECTIVES
from ditto.run import checkpoint, stop_signals
from ditto.run.checkpoint_writer import CheckpointWriter
from ditto.run.finite_steps import FiniteSteps, NotFinite, are_finite
from ditto.run.run_folder import RunFolder
from ditto.trainer import NOTICE_S
from ditto.trainer_modes import DittoTrainerSync


class Killed(BaseException):
    """The process ends here."""


class Trainer(DittoTrainerSync):
    """The trainer without Ray: what it does with a step that is trained."""

    def __init__(self, folder: Path, **trainer: Any) -> None:
        keys = {"default_local_dir": str(folder), "max_actor_ckpt_to_keep": None, "val_only": False}
        model = {"model": {"path": "unused", "lora_rank": 0}, "actor": {"checkpoint": {"save_lora_only": False}}}
        self.config: DictConfig = OmegaConf.create({"trainer": keys | trainer, "actor_rollout_ref": model})
        self.run_folder = RunFolder(folder)
        self.settings: Any = SimpleNamespace(objective=OBJECTIVES["grpo"], run=None)
        self.logger: Any = SimpleNamespace(logger={})
        self.parts: Any = SimpleNamespace(batches=[])
        self.watchdog: Any = SimpleNamespace(phase=lambda _name: nullcontext())
        self.judges: Any = SimpleNamespace(stop=None)
        self.finite = FiniteSteps()
        self.actor_rollout_wg: Any = SimpleNamespace(has_finite_weights=lambda: [True, True])
        self.checkpoints = CheckpointWriter(self.config, self.watchdog.phase)
        self.global_steps, self.steps_per_epoch, self.total_training_steps, self.timing_raw = 1, 4, 8, {}
        self._trained = SimpleNamespace(tags=[]), {"loss": 0.5}

    def _step_numbers(self, _batch: Any, timing_raw: dict[str, float], epoch: int) -> dict[str, Any]:
        return {"epoch": epoch, "timing_s/step": timing_raw["step"]}

    def one_step(self, validates: bool) -> None:
        """What verl's loop does from the checkpoint on."""
        self._save_checkpoint()
        self.timing_raw = {"step": 3.0}
        metrics = self._trained[1]  # type: ignore[index]
        if validates:
            self.on_validate_begin()
            metrics.update(self._validate())
        self._compute_metrics(self._trained[0], metrics, self.timing_raw, self.global_steps, 0)  # type: ignore[index]


@pytest.fixture(autouse=True)
def verls_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's own save and validation, without engines."""

    def save(trainer: Any) -> None:
        folder = Path(trainer.config.trainer.default_local_dir) / f"global_step_{trainer.global_steps}"
        folder.mkdir()
        (folder / "data.pt").write_bytes(b"state")

    monkeypatch.setattr(PPOTrainer, "_save_checkpoint", save)
    monkeypatch.setattr(stop_signals, "save_until", lambda: None)
    monkeypatch.setattr(PPOTrainer, "_validate", lambda _trainer: {"val/hitom/n": 6})
    monkeypatch.setattr(ditto.run.checkpoint_writer, "export_model", lambda _folder, _base: None)
    monkeypatch.setattr("ditto.trainer.summary_line", lambda *_: "a step")


@contextmanager
def killed_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process ends before the given rename: of metrics, checkpoint and tracker, all publish by renaming."""
    calls = 0

    def counted(real: Any) -> Any:
        def renamed(*arguments: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > call:
                raise Killed
            real(*arguments)

        return renamed

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(checkpoint.os, name, counted(getattr(checkpoint.os, name)))
        yield


@pytest.mark.parametrize("validates", [False, True])
def test_a_checkpoint_that_a_resume_takes_has_its_metrics_whenever_a_kill_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validates: bool
) -> None:
    seen = set()
    for call in range(100):
        trainer = Trainer(tmp_path / str(call), test_freq=1 if validates else -1, val_before_train=True)
        ended = True
        with killed_at(call, monkeypatch):
            try:
                trainer.one_step(validates)
            except Killed:
                ended = False
        step = checkpoint.newest_complete(tmp_path / str(call)).step
        numbers = trainer.run_folder.metrics_of(1)
        trainer._settle_validation()
        seen.add((step, "val/hitom/n" in numbers, bool(trainer.config.trainer.val_before_train)))
        if step == 1:  # published: the step's own numbers are there, and a validation is there or will be repeated
            assert numbers["loss"] == 0.5 and numbers["timing_s/step"] == 3.0
            assert not validates or ("val/hitom/n" in numbers) != trainer.config.trainer.val_before_train
        if ended:
            break
    assert ended and step == 1 and json.loads((tmp_path / str(call) / "metrics.jsonl").read_text())["epoch"] == 0
    if validates:
        assert {(1, False, True), (1, True, False)} <= seen
    else:
        assert (1, False, False) in seen


def test_trackers_get_what_metrics_jsonl_gets(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, test_freq=1, val_before_train=False)
    trainer.one_step(validates=True)
    recorded = trainer.run_folder.metrics_of(1)
    logged = trainer._trained[1]  # type: ignore[index]  # verl's loop passes it to the trackers
    assert {key for key in recorded if key.startswith("alarm/")} and recorded.keys() - logged.keys() <= {
        "step",
        "timing_s/testing",
    }


def test_a_run_that_resumes_validates_only_what_is_missing(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, test_freq=3, val_before_train=True)

    def validates(step: int) -> bool:
        trainer.global_steps = step
        trainer.config.trainer.val_before_train = True
        trainer._settle_validation()
        return bool(trainer.config.trainer.val_before_train)

    assert validates(0), "where the run begins"
    assert validates(7), "where it begins with another run's checkpoint: no line of its own"
    for step in range(1, 9):
        trainer.run_folder.log_metrics(step, {"loss": 1})
        assert validates(step) == (step in (3, 6, 8)), "due, and the last step"
        trainer.run_folder.log_metrics(step, {"val/hitom/n": 6})
        assert not validates(step)


def test_an_outage_is_raised_behind_the_published_step(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, test_freq=1, val_before_train=True)
    trainer.judges.stop = JudgeOutage("the judge is down")
    with pytest.raises(JudgeOutage):
        trainer.one_step(validates=True)
    assert checkpoint.newest_complete(tmp_path).step == 1
    assert "loss" in trainer.run_folder.metrics_of(1) and "val/hitom/n" not in trainer.run_folder.metrics_of(1)


def test_a_signal_during_a_validation_ends_the_run_with_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path, test_freq=1, val_before_train=True)

    def validate(_trainer: Any) -> dict[str, float]:
        monkeypatch.setattr(stop_signals, "save_until", lambda: 1e12)
        return {"val/hitom/n": 6}

    monkeypatch.setattr(PPOTrainer, "_validate", validate)
    published: list[int] = []
    real = checkpoint.publish
    monkeypatch.setattr(checkpoint, "publish", lambda root, step: (published.append(step), real(root, step))[1])
    trainer.one_step(validates=True)
    assert trainer.total_training_steps == 1 and published == [1]
    assert trainer.run_folder.metrics_of(1)["val/hitom/n"] == 6


@pytest.mark.parametrize("why", [JudgeOutage("the judge is down"), BudgetSpent("nothing is left")])
def test_a_validation_that_the_judges_cut_off_ends_the_run_and_the_resume_repeats_it(
    why: JudgeOutage | BudgetSpent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(tmp_path, test_freq=1, val_before_train=True)

    def validate(trainer: Any) -> dict[str, float]:
        trainer.judges.stop = why
        return {"val/hitom/n": 6, "val/hitom/invalid_share": 1.0}

    monkeypatch.setattr(PPOTrainer, "_validate", validate)
    trainer.one_step(validates=True)
    assert trainer.total_training_steps == 1, "no further step is trained"
    assert checkpoint.newest_complete(tmp_path).step == 1 and "val/hitom/n" not in trainer.run_folder.metrics_of(1)
    with pytest.raises(JudgeOutage) if isinstance(why, JudgeOutage) else nullcontext():
        trainer._raise_outage()
    trainer._settle_validation()
    assert trainer.config.trainer.val_before_train


@pytest.mark.parametrize("save_until", [None, 1100.0])
def test_a_run_ends_with_its_report_and_a_stopped_one_without(
    save_until: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    trainer = Trainer(tmp_path, test_freq=-1, val_before_train=False)
    trainer.watchdog.stop = lambda: None
    monkeypatch.setattr(PPOTrainer, "fit", lambda _trainer, _manager: None)
    monkeypatch.setattr(stop_signals, "save_until", lambda: save_until)
    monkeypatch.setattr("ditto.trainer.write_end_report", lambda _folder: seen.append("report"))
    trainer.fit(SimpleNamespace(agent_loop_workers=[]))
    assert seen == (["report"] if save_until is None else [])


@pytest.mark.parametrize("error", [ActorDiedError(), ValueError("a defect of ours")])
def test_an_error_of_an_actor_waits_for_the_watchdog_to_name_a_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """In the asynchronous modes a dead server often fails a call of the trainer before the watchdog asks it."""
    seen: list[Any] = []

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        seen.append(name)
        yield

    def fit(_trainer: Any, _manager: Any) -> None:
        raise error

    trainer = Trainer(tmp_path, test_freq=-1, val_before_train=False)
    trainer.watchdog = SimpleNamespace(phase=phase, stop=lambda: seen.append("stopped"))
    monkeypatch.setattr(PPOTrainer, "fit", fit)
    monkeypatch.setattr("ditto.trainer.time.sleep", seen.append)
    with pytest.raises(type(error)):
        trainer.fit(SimpleNamespace(agent_loop_workers=[]))
    assert seen == (["failure", NOTICE_S, "stopped"] if isinstance(error, ActorDiedError) else ["stopped"])


def test_three_steps_that_are_not_finite_end_the_run_without_a_checkpoint(tmp_path: Path) -> None:
    """A finite one in between begins the count again; a step without an update does not."""
    trainer = Trainer(tmp_path)
    norms = [1.0, math.nan, 2.0, math.inf, None, math.nan, math.nan]
    ended: list[NotFinite] = []
    for number, norm in enumerate(norms, 1):
        trainer.global_steps = number
        trainer._trained = SimpleNamespace(tags=[]), {}
        trainer.finite.note(number, are_finite({} if norm is None else {"actor/grad_norm": norm}, "actor/grad_norm"))
        try:
            trainer.one_step(validates=False)
        except NotFinite as error:
            ended.append(error)
    assert sorted(trainer.run_folder.metrics()) == list(range(1, len(norms) + 1))
    assert checkpoint.saved_steps(tmp_path) == [1, 3]
    assert len(ended) == 1 and str(ended[0]).startswith("Step 7: ") and f"{tmp_path}/global_step_3" in str(ended[0])


def test_weights_that_one_rank_has_lost_are_not_saved_and_end_the_run(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.one_step(validates=False)
    trainer.global_steps, trainer.actor_rollout_wg.has_finite_weights = 2, lambda: [True, False]
    with pytest.raises(NotFinite, match=f"Step 2: .* weights .*{tmp_path}/global_step_1"):
        trainer.one_step(validates=False)
    assert checkpoint.saved_steps(tmp_path) == [1] and not (tmp_path / checkpoint.PARTIAL).exists()
