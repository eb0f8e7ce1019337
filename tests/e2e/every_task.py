"""Train launches of the recipe for two steps, each or in a mixture, and say what came of it.

Real Ray, FSDP and vLLM, the DITTO recipe, a tiny model, invented rows and a judge by rule (`soul.examples`). The
files carry the names that the launcher looks for, so that is tried too.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.demo import smoke_model
from soul import tasks
from soul.examples.command import write
from soul.files.line_file import read_lines
from soul.files.trace_files import FOLDER, finished_files
from tests.e2e.run import Run

STEPS = 2
ROWS, VAL_ROWS = 8, 2  # of each task
OVERRIDES = [
    "data.max_prompt_length=3072",
    "data.max_response_length=1024",
    "data.max_feedback_length=512",
    "data.train_batch_size=4",
    "data.mixture.val_rows_per_task=2",
    "data.allow_overlap=true",  # the invented rows of both files begin alike
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "actor_rollout_ref.model.lora_rank=0",
    "actor_rollout_ref.rollout.n=2",
    "trainer.logger=[console]",
    f"trainer.total_training_steps={STEPS}",
    "trainer.save_freq=-1",
    "trainer.test_freq=-1",
]


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        code: its exit code; None where it ran out of time.
        sessions: the traces of the training steps that came to an end.
        validation: the traces of the validation before training.
        metrics: step -> numbers.
    """

    names: str
    code: int | None
    seconds: float
    folder: Path
    sessions: Sequence[Mapping[str, Any]]
    validation: Sequence[Mapping[str, Any]]
    metrics: Mapping[int, Mapping[str, float]]

    def problems(self) -> list[str]:
        """Why this run is no success: it did not end well, a step is missing, code of a task failed."""
        found = [] if self.code == 0 else [f"exit code {self.code}: see {self.folder / 'log.txt'}"]
        found += [f"no metrics of step {step}" for step in range(1, STEPS + 1) if step not in self.metrics]
        for trace in [*self.sessions, *self.validation]:
            attempts = [trace["draft"], trace["refined"] or {}]
            failures = [trace["feedback_failure"], *(attempt.get("failure") for attempt in attempts)]
            found += [f"{trace['task']}: {f['detail'][-300:]}" for f in failures if f and f["cause"] == "task_error"]
        for launch in tasks.launches(self.names):
            if not any(trace["task"] == launch.task for trace in [*self.sessions, *self.validation]):
                found.append(f"{launch.task} was not played")
            elif not any(t["refined"] and t["refined"]["valid"] for t in self.sessions if t["task"] == launch.task):
                found.append(f"no refined episode of {launch.task}")
        return found


def prepare(folder: Path, names: str, steps: int) -> None:
    """Write the files of these launches and the tiny model that plays them all."""
    for launch in tasks.launches(names):
        write([launch.task], ROWS, folder / "data" / "sim_rl_data" / f"{launch.train}.parquet")
        write([launch.task], VAL_ROWS, folder / "data" / "sim_eval_data" / f"{launch.val}.parquet")
    files = sorted(str(file) for file in (folder / "data" / "sim_rl_data").iterdir())
    smoke_model.make(files, folder / "model", steps)


def train(
    folder: Path,
    names: str,
    judge_url: str,
    limit_s: float,
    overrides: Sequence[str] = (),
    meanwhile: Callable[[Path], None] = lambda _out: None,
) -> Outcome:
    """Run the recipe's launcher on these tasks.

    Args:
        meanwhile: what happens to the run while it goes on; it gets the output folder, and it has to come to an end.
    """
    out = folder / "runs" / names.replace(",", "+")  # another start of a run resumes it
    model, data = folder / "model", {"DATA_DIR": str(folder / "data")}
    run = Run(out, "", "", model, judge_url, [*overrides], data, task=names, recipe=OVERRIDES)
    start = time.monotonic()
    run.start()
    assert run.process is not None
    code: int | None = None
    try:
        meanwhile(out)
        code = run.process.wait(limit_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGTERM)
            run.process.wait(60)
    seconds = time.monotonic() - start
    metrics = _metrics(out)
    sessions = [trace for trace in _traces(out, "step") if trace["step"] in metrics]
    return Outcome(names, code, seconds, out, sessions, _traces(out, "val"), metrics)


def _traces(out: Path, split: str) -> list[dict[str, Any]]:
    files = finished_files(out / "run" / FOLDER, split)
    return [json.loads(line.text) for file in files for line in read_lines(file.path)]


def _metrics(out: Path) -> dict[int, dict[str, float]]:
    file = out / "run" / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return {int(numbers["step"]): numbers for line in lines if (numbers := json.loads(line))}
