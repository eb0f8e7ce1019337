"""recipe/ditto/ablations.py: which runs are trained, what is drawn, what is refused.

The trainings are stand-ins that write a real run's metrics; plan, locks and figures are real.
"""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from ditto.run.stop_signals import Stopped
from recipe.ditto import ablations
from recipe.ditto.ablations import SEED_KEYS, Plan, launch_training, run_plan
from soul.errors import BadSettings, FolderInUse
from soul.figures.command import main as draw_figures
from soul.files.folder_lock import FolderLock
from tests.soul.figures.made_up_runs import training

STEPS = 4
SMALL = (
    *("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "data.max_response_length=1024"),
    *("data.max_prompt_length=4096", f"trainer.total_training_steps={STEPS}", "actor_rollout_ref.model.lora_rank=0"),
)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a command that trains two objectives with two seeds; the checks of a dry run are left out."""
    values = {"OUTPUT_DIR": tmp_path, "EXPERIMENT_NAME": "abl", "OBJECTIVES": "ditto grpo", "SEEDS": "1 2"}
    values |= {"TRAIN_FILES": "train.parquet", "VAL_FILES": "val.parquet", "ACTOR_MODEL_PATH": "model"}
    for name, value in {**values, "PLATFORM": "cpu", "OPENAI_API_KEY": "sk-test-1234567"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(ablations, "check", lambda config: "the plan")
    monkeypatch.setattr(ablations, "check_settings", lambda config: None)


class Trainings:
    """Stand-ins for trainings. A run's plan is its exit code and its last step, or a signal."""

    def __init__(self, **plan: tuple[int, int]) -> None:
        self.plan, self.started = plan, list[str]()

    def __call__(self, command: list[str], log: Path) -> int:
        values = dict(word.partition("=")[::2] for word in command)
        folder, name = Path(values["run.dir"].strip("'")), values["algorithm.objective"]
        assert {values[key] for key in SEED_KEYS} == {folder.name.rpartition("seed")[2]}
        self.started.append(folder.name)
        code, steps = self.plan.get(folder.name.replace("-", "_"), (0, STEPS))
        training(folder, int(values["data.seed"]), objective=name, steps=steps)
        log.parent.mkdir(exist_ok=True)
        log.write_text("a line\nthe last words\n")
        if code == -signal.SIGTERM:
            raise Stopped(signal.SIGTERM)
        return code


def start(trainings: Trainings, *more: str) -> int:
    return run_plan(Plan.from_environment("hitom", [*SMALL, *more], os.environ), trainings)


def test_runs_follow_one_another_and_only_what_is_missing_is_trained_again(
    environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, drawn = tmp_path / "abl", list[list[str]]()
    monkeypatch.setattr(ablations, "draw_figures", lambda words: drawn.append(list(words)) or 0)
    first = Trainings(grpo_seed1=(1, 2), ditto_seed2=(0, 3))  # one fails; of one the judge's budget is spent
    assert start(first) == 1
    assert first.started == ["ditto-seed1", "grpo-seed1", "ditto-seed2", "grpo-seed2"]
    shown = capsys.readouterr().out
    assert "grpo, seed 1: ended with code 1 at step 2" in shown and "    the last words" in shown
    assert (
        "ditto, seed 2: ended with code 0 at step 3 of 4" in shown
        and "2 of 4 runs failed: grpo-seed1, ditto-seed2" in shown
    )
    folders = [f"ditto={out / 'ditto-seed1'}", f"grpo={out / 'grpo-seed2'}"]
    assert drawn == [["--out", str(out / "figures"), "--runs", *folders]]

    # Stopped by a signal: nothing else is started, nothing is drawn.
    stopped = Trainings(grpo_seed1=(-signal.SIGTERM, 3))
    assert start(stopped) == 128 + signal.SIGTERM and stopped.started == ["grpo-seed1"] and len(drawn) == 1

    # What changes no result is no other setting.
    monkeypatch.setattr(ablations, "draw_figures", draw_figures)
    last = Trainings()
    assert start(last, "trainer.logger=[console]") == 0
    assert last.started == ["grpo-seed1", "ditto-seed2"]
    assert (out / "figures" / "ablation-sotopia.pdf").is_file()
    assert "2 finished, 2 to train" in capsys.readouterr().out


def test_other_settings_rows_and_judges_are_refused_before_anything_starts(
    environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablations, "draw_figures", lambda words: 0)
    monkeypatch.setenv("OBJECTIVES", "grpo")  # each config takes seconds to compose
    assert start(Trainings()) == 0
    again = Trainings()
    assert start(again) == 0 and again.started == []
    refused = Trainings()
    with pytest.raises(BadSettings, match="were trained with something else: overrides was"):
        start(refused, "actor_rollout_ref.actor.optim.lr=1e-3")
    with monkeypatch.context() as patch:
        patch.setenv("JUDGE_MODEL_NAME", "another-judge")
        with pytest.raises(BadSettings, match="JUDGE_MODEL_NAME was ''"):
            start(refused)
    monkeypatch.setenv("TRAIN_FILES", str(tmp_path / "other.parquet"))
    with pytest.raises(BadSettings, match="TRAIN_FILES was"):
        start(refused)
    assert refused.started == []


def test_a_training_that_still_runs_is_left_alone(environment: None, tmp_path: Path) -> None:
    trainings = Trainings()
    with FolderLock(tmp_path / "abl" / "grpo-seed2"), pytest.raises(FolderInUse):
        start(trainings)
    assert trainings.started == []


def test_a_signal_is_passed_on_once_and_waited_for(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready", tmp_path / "logs" / "log"
    script = f"trap 'echo saved; exit 143' TERM; touch {ready}; while :; do sleep 0.05; done"

    def stop() -> None:
        while not ready.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    with pytest.raises(Stopped):
        launch_training(["bash", "-c", script], log)
    assert log.read_text() == "saved\n"
