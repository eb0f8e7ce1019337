"""Train every task for two steps through its launcher, and say what came of it.

    python -m tests.e2e.every_task                       # the 23 launches, one run each: about two minutes a task
    python -m tests.e2e.every_task sotopia coser         # some of them
    python -m tests.e2e.every_task hitom,sotopia         # one run on a mixture

Real Ray, FSDP and vLLM, the DITTO recipe, a tiny model, invented rows and a judge by rule (`soul.examples`). The
files carry the names that the launcher looks for, so that is tried too.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from recipe.demo import smoke_model
from soul import tasks
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.files.line_file import read_lines
from soul.files.trace_files import FOLDER, finished_files
from soul.testing import FakeOpenAI

ROOT = Path(__file__).resolve().parents[2]
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
    out = folder / "runs" / names.replace(",", "+")
    out.mkdir(parents=True, exist_ok=True)  # another start of a run resumes it
    environment = {
        **os.environ,
        "OUTPUT_DIR": str(out),
        "EXPERIMENT_NAME": "run",
        "DATA_DIR": str(folder / "data"),
        "ACTOR_MODEL_PATH": str(folder / "model"),
        "OPENAI_BASE_URL": judge_url,
        "OPENAI_API_KEY": "any",
        "HF_HUB_OFFLINE": "1",
        "PLATFORM": "cpu",
    }
    start = time.monotonic()
    with (out / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            ["bash", str(ROOT / "recipe/ditto/run_rl.sh"), names, *OVERRIDES, *overrides],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            meanwhile(out)
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(60)
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


def _row(task: str, outcome: Outcome) -> list[str]:
    """A task's line of the table."""
    sessions = [trace for trace in outcome.sessions if trace["task"] == task]
    valid = [t for t in sessions if t["draft"]["valid"]]
    refined = [t["refined"]["reward"] for t in sessions if t["refined"] and t["refined"]["valid"]]
    rewards = [t["draft"]["reward"] for t in valid]
    turns = [sum(m["role"] == "assistant" for s in t["draft"]["seats"].values() for m in s) for t in valid]

    def mean(values: Sequence[float]) -> str:
        return f"{statistics.fmean(values):.2f}" if values else "-"

    return [
        task,
        str(len(sessions)),
        str(len(valid)),
        str(len(refined)),
        mean(turns),
        mean(rewards),
        mean(refined),
        f"{outcome.seconds:.0f}",
    ]


def table(outcomes: Sequence[Outcome]) -> Table:
    """What every task did."""
    made = Table(title=f"{STEPS} training steps of every task, DITTO, tiny model")
    for column in ("task", "sessions", "valid drafts", "refined", "turns a draft", "reward", "reward refined", "run s"):
        made.add_column(column, justify="left" if column == "task" else "right")
    for outcome in outcomes:
        for launch in tasks.launches(outcome.names):
            made.add_row(*_row(launch.task, outcome))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 where a run is no success."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.every_task", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "names", nargs="*", help="launches, or several with commas; none: every launch in a run of its own"
    )
    parser.add_argument("--folder", type=Path, help="where everything lands; the model there is used again")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a run may take")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="every-task-"))
    console = Console(width=110)
    if not (folder / "model").exists():
        prepare(folder, "all", steps=150)
    outcomes: list[Outcome] = []
    with FakeOpenAI(answer) as judge:
        for names in given.names or list(tasks.TASK_FILES):
            outcome = train(folder, names, judge.url, given.limit)
            outcomes.append(outcome)
            said = "; ".join(outcome.problems()) or "ok"
            console.print(f"{names}: {outcome.seconds:.0f} s, {said}", soft_wrap=True)
    console.print(table(outcomes))
    return int(any(outcome.problems() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
