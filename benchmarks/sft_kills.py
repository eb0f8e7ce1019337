"""Kill a supervised training again and again, and compare it with an undisturbed one.

    python -m benchmarks.sft_kills /tmp/kills --kills 10 --aimed 4
    python -m benchmarks.sft_kills /tmp/kills trainer.save_freq=1    # overrides of the killed run

A tiny model is trained on two processes. Each kill sends SIGKILL to the launcher, to one of its processes, or to all
of them, at a random moment or (`--aimed`) while a checkpoint is written. After each kill no process may remain, and
every saved step must have its line in metrics.jsonl. At the end the metrics must equal those of the undisturbed run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from soul.cli.arguments import non_negative_int, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors

ROOT = Path(__file__).resolve().parents[1]
START_S = 600.0
END_S = 20.0  # until the last process of a killed run must be gone
NUMBERS = ("train/loss", "train/grad_norm", "train/lr", "train/trained_tokens", "val/loss")


def build(folder: Path) -> None:
    """A tiny model and a corpus of 64 rows."""
    from recipe.demo import tiny_model

    rng = random.Random(0)
    places = ["box", "basket", "garden", "kitchen"]
    rows, texts = [], []
    for number in range(64):
        answer = f"In the {rng.choice(places)}, next to {number} apples."
        texts += ["Where is the pear?", answer]
        messages = [{"role": "user", "content": "Where is the pear?"}, {"role": "assistant", "content": answer}]
        rows.append({"messages": messages, "data_source": "pears"})
    folder.mkdir(parents=True, exist_ok=True)
    tiny_model.build(folder / "model", texts)
    pq.write_table(pa.Table.from_pylist(rows), folder / "train_shard_0.parquet")
    pq.write_table(pa.Table.from_pylist(rows[:8]), folder / "val_shard_0.parquet")


def start(folder: Path, name: str, steps: int, *words: str) -> subprocess.Popen[bytes]:
    """Start the training in `folder/name`; its output is appended to `folder/name.log`."""
    command = [
        *(sys.executable, str(ROOT / "train_sft.py"), "platform=cpu"),
        *(f"data.dir={folder}", f"model.path={folder}/model", f"run.dir={folder}/{name}"),
        "data.default_train_role=assistant",
        *("data.max_prompt_length=200", "data.max_response_length=50", "data.max_token_len_per_gpu=2048"),
        *("data.train_batch_size=8", "data.num_workers=0", "optim.lr_warmup_steps=0"),
        *("trainer.n_gpus_per_node=2", f"trainer.total_training_steps={steps}"),
        *("trainer.save_freq=3", "trainer.test_freq=3", "trainer.max_ckpt_to_keep=3", *words),
    ]
    environment = {"PLATFORM": "cpu", "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", **os.environ}
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def lines(run: Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl."""
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], within_s: float = START_S) -> bool:
    """Wait until `ready()`. Returns False if the process ended or the time ran out first."""
    deadline = time.monotonic() + within_s
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """The processes that still run."""
    return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def kill(process: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Kill the run in one of three ways, and wait until all its processes are gone. Returns the way."""
    processes = family(process.pid)
    way = rng.choice(["launcher", "rank", "all"])
    ranks = psutil.Process(process.pid).children()
    victims = {"launcher": processes[:1], "rank": [rng.choice(ranks or processes)], "all": processes}[way]
    for victim in victims:
        victim.send_signal(signal.SIGKILL)
    process.wait(60)
    deadline = time.monotonic() + END_S
    while left := alive(processes):
        assert time.monotonic() < deadline, f"left after a kill of {way}: {left}"
        time.sleep(0.05)
    return way


def check(run: Path) -> str:
    """Check that no step is missing or twice, and that a saved step has its metrics. Returns the last steps."""
    from ditto.run.checkpoint import newest_complete

    known, choice = lines(run), newest_complete(run)
    assert [line["step"] for line in known] == list(range(1, len(known) + 1)), [line["step"] for line in known]
    assert not choice.skipped, choice.skipped
    assert choice.step <= len(known), f"step {choice.step} is saved and has no metrics"
    assert all("val/loss" in known[step - 1] for step in range(3, choice.step + 1, 3))
    return f"step {len(known)}, saved {choice.step}"


def start_and_wait(
    folder: Path, steps: int, aimed: bool, rng: random.Random, *words: str
) -> tuple[subprocess.Popen[bytes], bool]:
    """Start the run that is killed; wait until it writes its first to third checkpoint, or has done 1 to 8 steps.

    Returns:
        The run, and whether it got that far.
    """
    log, partial = folder / "killed.log", folder / "killed" / ".partial"
    size = log.stat().st_size if log.exists() else 0
    process = start(folder, "killed", steps, *words)
    saves, done = rng.randint(1, 3), rng.randint(1, 8)

    def reached() -> bool:
        printed = log.read_bytes()[size:]
        if aimed:
            return printed.count(b"saved step ") >= saves - 1 and any(partial.glob("global_step_*/actor"))
        return printed.count(b"train/loss:") >= done

    return process, wait_until(reached, process)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trial. Returns 0 if the run survived every kill."""
    parser = Parser(prog="python -m benchmarks.sft_kills", description=__doc__)
    parser.add_argument("folder", type=output_folder, help="empty or new")
    parser.add_argument("words", nargs="*", help="overrides of the run that is killed")
    parser.add_argument("--kills", type=positive_int, default=10)
    parser.add_argument("--aimed", type=non_negative_int, default=4, help="kills while a checkpoint is written")
    parser.add_argument("--steps", type=positive_int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_intermixed_args(arguments)
    folder, rng = args.folder.absolute(), random.Random(args.seed)
    build(folder)
    assert start(folder, "straight", args.steps).wait() == 0, f"see {folder}/straight.log"
    run = folder / "killed"
    for number in range(1, args.kills + 1):
        aimed = number <= args.aimed
        process, ready = start_and_wait(folder, args.steps, aimed, rng, *args.words)
        time.sleep(rng.uniform(0, 0.4 if aimed else 1.0))
        assert ready or process.poll() == 0, f"it ended by itself: see {folder}/killed.log"
        if process.poll() is not None:
            break
        way = kill(process, rng)
        print(f"kill {number} of {way}{', aimed' if aimed else ''}: {check(run)}", flush=True)
    assert start(folder, "killed", args.steps, *args.words).wait() == 0, f"see {folder}/killed.log"
    check(run)
    for one, other in zip(lines(folder / "straight"), lines(run), strict=True):
        for key in NUMBERS:
            a, b = one.get(key), other.get(key)
            assert a == b or (a and b and abs(a - b) <= 1e-5 * abs(a)), f"step {one['step']}, {key}: {a} and {b}"
    print(f"all {args.steps} steps once, with the numbers of the undisturbed run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
