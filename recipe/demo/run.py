"""The demo from start to end: warm start, DITTO, evaluation, tables and curves.

    python -m recipe.demo.run [hydra overrides...]

Everything is real but small: Ray, FSDP2, vLLM's CPU build, a judge behind HTTP. The judge is an offline stand-in that
writes critiques by rule; set OPENAI_BASE_URL and OPENAI_API_KEY to use your own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from recipe.demo import evaluate, summary, warm_start
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.5
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
def judge(folder: Path) -> Iterator[dict[str, str]]:
    """Environment variables of the judge's endpoint: the user's, or those of a stand-in that runs inside this block."""
    if os.environ.get("OPENAI_BASE_URL") and os.environ.get("OPENAI_API_KEY"):
        console.print(f"  judge: {os.environ['OPENAI_BASE_URL']}")
        yield {}
        return
    ready = folder / "judge.ready"
    ready.unlink(missing_ok=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "recipe.demo.judge_server", "--port", "0", "--ready-file", str(ready)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        while not ready.exists():
            if server.poll() is not None:
                raise StageFailed(f"the stand-in judge ended with code {server.returncode}.")
            time.sleep(0.05)
        url = ready.read_text().strip()
        console.print(f"  judge: offline stand-in, critiques by rule ({url}); OPENAI_BASE_URL replaces it")
        yield {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "offline", "JUDGE_MODEL_NAME": "offline-stand-in"}
    finally:
        server.terminate()
        server.wait(timeout=10)


def train(folder: Path, model: Path, overrides: Sequence[str], endpoint: dict[str, str]) -> None:
    """Run train_ppo.py with its log in a file, and print a line per step.

    Args:
        folder: holds train.parquet and heldback.parquet; gets run/ and train.log.
        model: the folder of the model to start from.

    Raises:
        StageFailed: training failed, after printing the end of its log.
    """
    log = folder / "train.log"
    command = [
        *(sys.executable, str(ROOT / "train_ppo.py")),
        *("--config-dir", str(ROOT / "recipe" / "demo"), "--config-name", "demo"),
        *("platform=cpu", f"data.train_files=[{folder / 'train.parquet'}]"),
        *(f"data.val_files=[{folder / 'heldback.parquet'}]", f"actor_rollout_ref.model.path={model}"),
        *(f"run.dir={folder / 'run'}", f"trainer.experiment_name={folder.name}", "trainer.resume_mode=disable"),
        *overrides,
    ]
    shutil.rmtree(folder / "run", ignore_errors=True)  # the demo always starts over
    with log.open("w") as file:
        environment = {**os.environ, **endpoint, **ON_A_CPU}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            follow(process, folder / "run" / "metrics.jsonl")
        finally:
            process.terminate()
    if process.wait() != 0:
        console.print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-30:]), markup=False)
        raise StageFailed(f"training ended with code {process.returncode}; its log is {log}.")


def follow(process: subprocess.Popen[bytes], metrics: Path) -> None:
    """Print a line per training step until the process ends."""
    shown: set[int] = set()
    console.print("  starting Ray, FSDP and vLLM: about two minutes until the first step")
    with console.status("starting ...") as status:
        while True:
            ended = process.poll() is not None
            lines = metrics.read_text().splitlines() if metrics.exists() else []
            for step in map(json.loads, lines):
                if "ditto/reward_draft" in step and step["step"] not in shown:
                    shown.add(step["step"])
                    console.print(
                        f"  step {step['step']:>3}  drafts {step['ditto/reward_draft']:.3f}  "
                        f"refined {step.get('ditto/reward_refined', float('nan')):.3f}  "
                        f"{step['timing_s/step']:.1f} s",
                        highlight=False,
                    )
                    status.update("training ...")
            if ended:
                return
            time.sleep(POLL_S)


def last_checkpoint(run: Path) -> Path:
    """The model of the last complete checkpoint."""
    return run / f"global_step_{(run / 'latest_checkpointed_iteration.txt').read_text().strip()}"


def overrides_of(program: str, description: str | None, arguments: Sequence[str] | None) -> list[str]:
    """Parse a demo's command line. Returns the Hydra overrides."""
    parser = Parser(prog=program, description=description)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of the training")
    overrides: list[str] = parser.parse_args(arguments).overrides
    return overrides


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo; overrides go to the training config."""
    overrides = overrides_of("python -m recipe.demo.run", __doc__, arguments)
    folder = Path(os.environ.get("OUTPUT_DIR", "outputs")).absolute() / os.environ.get("EXPERIMENT_NAME", "demo")
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with stage("1/4  Stories, a tiny Qwen3 model, and its warm start"):
        warm_start.prepare(folder, warm_start.WarmStart())
    with stage("2/4  DITTO on real Ray, FSDP2 and vLLM"), judge(folder) as endpoint:
        train(folder, folder / "warm", overrides, endpoint)
    with stage("3/4  Accuracy on held-back stories"):
        names = {"base": folder / "base", "warm": folder / "warm", "ditto": last_checkpoint(folder / "run")}
        evaluate.compare(folder / "heldback.parquet", names, folder / "accuracy.json")
    console.print("[bold]4/4  Summary[/bold]")
    summary.show(folder / "run" / "metrics.jsonl", folder / "accuracy.json", folder / "curves.png")
    console.print(f"Whole demo: {time.perf_counter() - start:.0f} s. Log, traces and checkpoint: {folder}")


if __name__ == "__main__":
    sys.exit(main())
