"""The demo from start to end: warm start, DITTO, evaluation, tables and curves.

    python -m recipe.demo.run [--compare | --real FOLDER] [hydra overrides...]

With --compare, GRPO then trains the same model for the same time, and both are drawn. With --real, SmolLM2-135M learns
to write the first messages of MirrorBench's people (first_message.py); FOLDER holds their *_mirror.jsonl.

Everything is real but small: Ray, FSDP2, vLLM's CPU build, a judge behind HTTP. The judge is an offline stand-in that
writes critiques by rule; set OPENAI_BASE_URL and OPENAI_API_KEY to use your own.
"""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from transformers.utils import logging as hf_logging

from recipe.demo import coach, evaluate, first_message, summary, warm_start
from recipe.demo.stories import HARDLY_EVER_RIGHT
from recipe.demo.summary import read_steps
from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.5
# With the demo's own objective. One run of several without this floor fell to 0.67 (docs/measurements/stability.md).
STEADY = ("algorithm.std_floor=0.5",)
GRPO = ("algorithm.objective=grpo", "trainer.total_training_steps=1000")  # time stops it earlier
ON_A_CPU = {"VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
ON_A_CPU |= {"RAY_USAGE_STATS_ENABLED": "0", "TQ_LOGGING_LEVEL": "ERROR"}
console = Console()


class StageFailed(SoulError):
    """A process that the demo started has failed."""

    exit_code = 1


@contextmanager
def stage(title: str) -> Iterator[None]:
    """Print the title, and at the end how long the stage took."""
    start = time.perf_counter()
    console.print(f"[bold]{title}[/bold]")
    yield
    console.print(f"  {time.perf_counter() - start:.0f} s")


@contextmanager
def judge() -> Iterator[dict[str, str]]:
    """Environment variables of the judge's endpoint: the user's, or those of a stand-in that runs inside this block."""
    if os.environ.get("OPENAI_BASE_URL") and os.environ.get("OPENAI_API_KEY"):
        console.print(f"  judge: {os.environ['OPENAI_BASE_URL']}")
        yield {}
        return
    with coach.server() as stand_in:
        console.print(f"  judge: offline stand-in, critiques by rule ({stand_in.url}); OPENAI_BASE_URL replaces it")
        yield {"OPENAI_BASE_URL": stand_in.url, "OPENAI_API_KEY": "offline", "JUDGE_MODEL_NAME": "offline-stand-in"}


def steadied(overrides: Sequence[str]) -> list[str]:
    """The user's overrides, with STEADY before them unless they choose an objective: not every one reads a floor."""
    chosen = any(word.lstrip("+").startswith("algorithm.objective=") for word in overrides)
    return [*(() if chosen else STEADY), *overrides]


def train(
    folder: Path,
    model: Path,
    overrides: Sequence[str],
    endpoint: dict[str, str],
    name: str = "run",
    limit_s: float = math.inf,
) -> None:
    """Run train_ppo.py with its log in a file, and print a line per step.

    Args:
        folder: holds train.parquet and heldback.parquet; gets the run's folder and its log, `name` and `name`.log.
        model: the folder of the model to start from.
        limit_s: stop once the steps have taken this many seconds; the step that is under way is finished and saved.
    """
    run, log = folder / name, folder / f"{name}.log"
    command = [
        *(sys.executable, str(ROOT / "train_ppo.py")),
        *("--config-dir", str(ROOT / "recipe" / "demo"), "--config-name", "demo"),
        *("platform=cpu", f"data.train_files=[{folder / 'train.parquet'}]"),
        *(f"data.val_files=[{folder / 'heldback.parquet'}]", f"actor_rollout_ref.model.path={model}"),
        *(f"run.dir={run}", f"trainer.experiment_name={folder.name}", "trainer.resume_mode=disable"),
        *overrides,
    ]
    shutil.rmtree(run, ignore_errors=True)  # the demo always starts over
    with log.open("w") as file:
        environment = {**os.environ, **endpoint, **ON_A_CPU}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            stopped = follow(process, run / "metrics.jsonl", limit_s)
        finally:
            process.terminate()
    if process.wait() != (128 + signal.SIGTERM if stopped else 0):
        console.print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-30:]), markup=False)
        raise StageFailed(f"training ended with code {process.returncode}; its log is {log}.")


def follow(process: subprocess.Popen[bytes], metrics: Path, limit_s: float) -> bool:
    """Print a line per training step until the process ends. Returns whether it was stopped after `limit_s` seconds."""
    shown, stopped = 0, False
    console.print("  starting Ray, FSDP and vLLM: about a minute until the first step")
    while True:
        ended = process.poll() is not None
        steps = read_steps(metrics)
        for step in steps[shown:]:
            refined = "" if step.refined is None else f"refined {step.refined:.3f}  "
            line = f"  step {step.number:>3}  drafts {step.draft:.3f}  {refined}{step.seconds:.1f} s"
            console.print(line, highlight=False)
        shown = len(steps)
        if ended:
            return stopped
        if not stopped and sum(step.seconds for step in steps) >= limit_s:
            process.terminate()
            stopped = True
        time.sleep(POLL_S)


def last_checkpoint(run: Path) -> Path:
    """The model of the last complete checkpoint."""
    return run / f"global_step_{(run / 'latest_checkpointed_iteration.txt').read_text().strip()}"


def train_real(folder: Path, people: Path, overrides: Sequence[str]) -> None:
    """The demo of a real model; its warm start is made once."""
    model = os.environ.get("ACTOR_MODEL_PATH", "HuggingFaceTB/SmolLM2-135M-Instruct")
    if not (folder / "warm" / "model.safetensors").is_file():
        with stage(f"Warm start of {model}"):
            first_message.prepare(folder, model, people)
    endpoint = {"PYTHONPATH": first_message.register(folder)}
    with judge() as variables, stage("DITTO on real Ray, FSDP2 and vLLM"):
        settings = [*first_message.OVERRIDES, "trainer.total_training_steps=8", *overrides]
        train(folder, folder / "warm", settings, {**variables, **endpoint})
    first_message.show(folder / "heldback.parquet", folder / "run")


def demo_parser(program: str, description: str | None) -> Parser:
    """The command line of a demo: Hydra overrides."""
    parser = Parser(prog=program, description=description)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of the training")
    return parser


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo; overrides go to the training config."""
    parser = demo_parser("python -m recipe.demo.run", __doc__)
    parser.add_argument("--compare", action="store_true", help="train with GRPO for the same time, and draw both")
    parser.add_argument("--real", type=existing_folder, metavar="FOLDER", help="a real model on MirrorBench's people")
    args = parser.parse_args(arguments)
    folder = Path(os.environ.get("OUTPUT_DIR", "outputs")).absolute() / os.environ.get("EXPERIMENT_NAME", "demo")
    folder.mkdir(parents=True, exist_ok=True)
    hf_logging.disable_progress_bar()
    if args.real:
        train_real(folder, args.real, args.overrides)
        return
    start = time.perf_counter()
    runs, overrides = {"ditto": folder / "run"}, steadied(args.overrides)
    with stage("Stories, a tiny Qwen3 model, and its warm start"):
        warm_start.prepare(folder, warm_start.WarmStart(), population=HARDLY_EVER_RIGHT)
    with judge() as endpoint:
        with stage("DITTO on real Ray, FSDP2 and vLLM"):
            train(folder, folder / "warm", overrides, endpoint)
        if args.compare:
            seconds = sum(step.seconds for step in read_steps(folder / "run" / "metrics.jsonl"))
            with stage(f"GRPO for the same time: {seconds:.0f} s of training"):
                train(folder, folder / "warm", [*overrides, *GRPO], endpoint, "grpo", seconds)
            runs["grpo"] = folder / "grpo"
    with stage("Accuracy on held-back stories"):
        models = {"base": folder / "base", "warm": folder / "warm"}
        models |= {name: last_checkpoint(run) for name, run in runs.items()}
        accuracies = evaluate.compare(folder / "heldback.parquet", models, folder / "accuracy.json")
    console.print("[bold]Summary[/bold]")
    steps = {name: read_steps(run / "metrics.jsonl") for name, run in runs.items()}
    summary.show(steps, accuracies, folder / "curves.png")
    console.print(f"Whole demo: {time.perf_counter() - start:.0f} s. Logs, traces and checkpoints: {folder}")


if __name__ == "__main__":
    sys.exit(main())
