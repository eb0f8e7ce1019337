"""The trainer itself in a process of its own: what is seeded, what a step's metrics say, what checkpoints hold."""

import json
import math
import os
from pathlib import Path
from socket import socket
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from omegaconf import OmegaConf
from peft import PeftModel
from transformers import AutoModelForCausalLM

from ditto.run.checkpoint import saved_steps, size_of
from ditto.run.finite_steps import NotFinite
from ditto.run.manifest import check as check_manifest
from sft.config_checks import check_config
from sft.launch import config_of
from tests.e2e import sft_run

RANKS = 1
SMALL = [
    *("platform=cpu", "data.max_prompt_length=200", "data.max_response_length=50", "data.max_token_len_per_gpu=2048"),
    *("data.train_batch_size=24", "data.val_files=null", "trainer.test_freq=-1"),
    *(f"trainer.n_gpus_per_node={RANKS}", "trainer.total_training_steps=4", "trainer.save_freq=after_each_epoch"),
    *("optim.lr=1e-2", "optim.lr_warmup_steps=2", "model.lora_rank=4", "trainer.logger=[console,tensorboard,file]"),
]


# name -> further words; "resumed" and "longer" resume after step 3 of the second
RUNS = {
    "one": [],
    "two": ["checkpoint.save_lora_only=true"],
    "resumed": ["checkpoint.save_lora_only=true", "trainer.max_ckpt_to_keep=1"],
    "diverging": ["trainer.total_training_steps=9", "trainer.save_freq=-1", "model.lora_rank=0"],
    "lost": ["trainer.save_freq=1", "model.lora_rank=0"],
    "longer": ["checkpoint.save_lora_only=true", "trainer.total_training_steps=6", "trainer.save_freq=-1"],
}


def _rank(rank: int, folder: Path) -> None:
    """Train as three commands would: nothing that was drawn before may matter."""
    os.chdir(folder / "elsewhere")
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": (folder / "port").read_text()}
    from ditto.verl_hooks import plugin
    from sft.trainer import SupervisedTrainer

    plugin.require("cpu")
    dist.init_process_group("gloo")
    for name, words in RUNS.items():
        torch.seed()
        os.environ["SFT_RESUME_FROM"] = f"{folder}/two/global_step_3" if name in ("resumed", "longer") else ""
        places = [f"data.dir={folder}", f"model.path={folder}/model", f"run.dir={folder}/{name}"]
        places += [f"data.cache_dir={folder}/cache", "data.default_train_role=assistant"]
        config = config_of([*SMALL, *places, *words])
        check_config(config)
        if name in ("diverging", "lost"):
            config.optim.lr = 1e30  # the second update loses the weights; the first has a rate of 0
            with pytest.raises(NotFinite) as ended:
                SupervisedTrainer(config).fit()
            (folder / f"{name}.txt").write_text(str(ended.value))
        else:
            assert SupervisedTrainer(config).fit() == 0
        for variable in ("TENSORBOARD_DIR", "VERL_FILE_LOGGER_PATH"):
            os.environ.pop(variable)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs' folders."""
    folder = tmp_path_factory.mktemp("runs")
    sft_run.build(folder)
    (folder / "elsewhere").mkdir()
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        (folder / "port").write_text(str(free.getsockname()[1]))
    mp.start_processes(_rank, args=(folder,), nprocs=RANKS, start_method="spawn")
    return folder


def metrics(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").open()]


def test_the_same_command_trains_the_same(runs: Path) -> None:
    one, two = metrics(runs / "one"), metrics(runs / "two")
    for key in ("train/loss", "train/grad_norm", "train/trained_tokens"):
        assert [line[key] for line in one] == [line[key] for line in two], key  # LoRA's first weights are seeded
    assert one[0]["train/loss"] != one[3]["train/loss"]


def test_the_learning_rate_is_that_of_the_step(runs: Path) -> None:
    """Warm-up over two steps, then half a cosine over two; the first step changes nothing."""
    assert [line["train/lr"] for line in metrics(runs / "one")] == [0.0, 0.005, 0.01, 0.005]
    longer = [line["train/lr"] for line in metrics(runs / "longer")]  # a cosine over four steps, from its second on
    assert longer == pytest.approx([0.01 * (1 + math.cos(math.pi * done / 4)) / 2 for done in (1, 2, 3)])


def test_a_checkpoint_after_each_epoch_and_all_files_in_the_folder(runs: Path) -> None:
    """64 sequences: steps 1 to 3 have 72, so the first epoch ends within step 3."""
    assert saved_steps(runs / "one") == [3, 4]
    assert list((runs / "one" / "tensorboard").iterdir()) and (runs / "one" / "logged.jsonl").is_file()
    assert not list((runs / "elsewhere").iterdir())


def test_the_adapter_alone_is_the_merged_model_and_a_run_resumes_from_it(runs: Path) -> None:
    alone, whole = runs / "two" / "global_step_4", runs / "one" / "global_step_4"
    assert not list(alone.rglob("model.safetensors")) and not (alone / "config.json").exists()
    assert size_of(alone) < size_of(whole) / 5
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(runs / "model"), alone / "lora_adapter")
    merged = AutoModelForCausalLM.from_pretrained(whole).state_dict()
    for name, weight in adapted.merge_and_unload().state_dict().items():
        torch.testing.assert_close(weight, merged[name])
    (last,) = metrics(runs / "resumed")
    kept = ("step", "train/loss", "train/grad_norm", "train/lr")
    assert [last[key] for key in kept] == [metrics(runs / "one")[-1][key] for key in kept]
    assert saved_steps(runs / "resumed") == [4]


def test_three_steps_that_are_not_finite_end_the_run(runs: Path) -> None:
    lines, ended = metrics(runs / "diverging"), (runs / "diverging.txt").read_text()
    assert ["train/grad_norm" in line for line in lines] == [True, True, False, False, False]
    assert saved_steps(runs / "diverging") == []
    assert ended.startswith("Step 5: ") and "No earlier checkpoint exists" in ended


def test_a_step_that_loses_the_weights_ends_the_run_without_a_checkpoint_of_it(runs: Path) -> None:
    lines, ended = metrics(runs / "lost"), (runs / "lost.txt").read_text()
    assert [math.isfinite(line["train/grad_norm"]) for line in lines] == [True, True]
    assert saved_steps(runs / "lost") == [1]
    check_manifest(runs / "lost" / "global_step_1")
    assert ended.startswith("Step 2: ") and f"{runs}/lost/global_step_1" in ended


@pytest.mark.parametrize(("policy", "moved"), [(False, ["cpu", "cuda"]), (True, [])])
def test_a_generative_test_leaves_alone_what_fsdp_keeps_on_the_host(
    policy: bool, moved: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved to the device, Adam's state would no longer be where its parameters are: the next step would fail."""
    from sft.trainer import SupervisedTrainer

    trainer = SupervisedTrainer.__new__(SupervisedTrainer)
    places: list[str] = []
    trainer.engine, trainer.waiting, trainer.device_name = SimpleNamespace(to=places.append), None, "cuda"
    trainer.config = OmegaConf.create({"engine": {"offload_policy": policy}})
    trainer.generative = SimpleNamespace(run=lambda *_: {"val/rl_test_failed": 0.0})
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "barrier", lambda _: None)
    assert trainer._test(tmp_path, 3) == {"val/rl_test_failed": 0.0}
    assert places == moved
