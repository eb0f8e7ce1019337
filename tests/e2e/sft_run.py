"""A supervised training of a tiny model on two processes, started as a user would start it."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
START_S = 600.0


def build(folder: Path) -> None:
    """Write a tiny model and a corpus of 64 rows."""
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


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Wait until `ready()`. Returns False if the process ended or the time ran out first."""
    deadline = time.monotonic() + START_S
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
