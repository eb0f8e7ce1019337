"""The trainer itself in a process of its own: what is seeded, what a step's metrics say, where files are written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks import sft_kills
from sft.launch import config_of

RANKS = 1
SMALL = [
    *("platform=cpu", "data.max_prompt_length=200", "data.max_response_length=50", "data.max_token_len_per_gpu=2048"),
    *("data.train_batch_size=24", "data.tokenizer_workers=0", "data.val_files=null", "trainer.test_freq=-1"),
    *(f"trainer.n_gpus_per_node={RANKS}", "trainer.total_training_steps=4", "trainer.save_freq=after_each_epoch"),
    *("optim.lr=1e-2", "optim.lr_warmup_steps=2", "model.lora_rank=4", "trainer.logger=[console,tensorboard,file]"),
    *("profiler.enable=true", "trainer.profile_interval=[2,3]"),
]


def _rank(rank: int, folder: Path) -> None:
    """Train twice, as two commands would: nothing that was drawn before may matter."""
    import torch

    os.chdir(folder / "elsewhere")
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "SFT_RESUME_FROM": ""}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": (folder / "port").read_text()}
    from ditto.verl_hooks import plugin
    from sft.trainer import SupervisedTrainer

    plugin.require("cpu")
    dist.init_process_group("gloo")
    for name in ("one", "two"):
        torch.seed()
        words = [f"data.dir={folder}", f"model.path={folder}/model", f"run.dir={folder}/{name}"]
        assert SupervisedTrainer(config_of([*SMALL, *words])).fit() == 0
        os.environ.pop("TENSORBOARD_DIR", None)
        os.environ.pop("VERL_FILE_LOGGER_PATH", None)
    dist.destroy_process_group()


def test_two_runs_of_the_same_command_are_the_same_and_write_into_their_folders(tmp_path: Path) -> None:
    sft_kills.build(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "port").write_text(str(29600 + os.getpid() % 300))
    mp.start_processes(_rank, args=(tmp_path,), nprocs=RANKS, start_method="spawn")
    one, two = ([json.loads(line) for line in (tmp_path / name / "metrics.jsonl").open()] for name in ("one", "two"))
    for key in ("train/loss", "train/grad_norm", "train/trained_tokens"):
        assert [line[key] for line in one] == [line[key] for line in two], key  # LoRA's first weights are seeded
    assert [line["train/lr"] for line in one] == [0.0, 0.005, 0.01, 0.005]  # warm-up over 2 steps, half a cosine over 2
    assert one[0]["train/loss"] != one[2]["train/loss"] or one[1]["train/loss"] != one[2]["train/loss"]
    # 64 sequences: steps 1 to 3 have 72, so the first epoch ends within step 3.
    assert {path.name for path in (tmp_path / "one").glob("global_step_*")} == {"global_step_3", "global_step_4"}
    assert list((tmp_path / "one" / "tensorboard").iterdir()) and (tmp_path / "one" / "logged.jsonl").is_file()
    assert len(list((tmp_path / "one" / "profile").glob("*.json.gz"))) == 1
    assert not list((tmp_path / "elsewhere").iterdir())
