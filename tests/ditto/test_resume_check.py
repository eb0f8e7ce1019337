"""A run that cannot resume says so before an engine starts, and what to do instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.resume import check_resume
from ditto.settings import BadConfig

PARTS = ("model", "optim", "extra_state")


def save(run: Path, step: int, devices: int, parts: tuple[str, ...] = PARTS, lora_rank: int = 0) -> Path:
    """A checkpoint as verl names its files, without what is in them."""
    actor = run / f"global_step_{step}" / "actor"
    actor.mkdir(parents=True)
    for part in parts:
        for rank in range(devices):
            (actor / f"{part}_world_size_{devices}_rank_{rank}.pt").touch()
    if lora_rank:
        (actor / "lora_train_meta.json").write_text(json.dumps({"r": lora_rank, "lora_alpha": 2 * lora_rank}))
    (run / "latest_checkpointed_iteration.txt").write_text(str(step))
    return actor.parent


def config(run: Path, devices: int = 2, *words: str) -> DictConfig:
    """The keys that the check reads, with some words of a command line on top."""
    trainer = {"nnodes": 1, "n_gpus_per_node": devices, "default_local_dir": str(run), "resume_mode": "auto"}
    actor = {"checkpoint": {"load_contents": ["model", "optimizer", "extra"]}}
    base = {"trainer": trainer, "actor_rollout_ref": {"actor": actor, "model": {"lora_rank": 0}}}
    return DictConfig(OmegaConf.merge(base, OmegaConf.from_dotlist(list(words))))


def refusal(run: Path, devices: int = 2, *words: str) -> str:
    with pytest.raises(BadConfig) as refused:
        check_resume(config(run, devices, *words))
    return str(refused.value)


def test_the_same_devices_resume_and_a_new_run_begins(tmp_path: Path) -> None:
    check_resume(config(tmp_path))
    folder = save(tmp_path, 4, devices=2)
    check_resume(config(tmp_path))
    check_resume(config(tmp_path, 1, "trainer.nnodes=2"))
    check_resume(config(tmp_path, 8, "trainer.resume_mode=disable"))
    by_path = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]
    check_resume(config(tmp_path / "new", 2, *by_path))
    assert "saved on 2 devices" in refusal(tmp_path / "new", 4, *by_path)


def test_another_number_of_devices_is_one_paragraph_with_two_ways_out(tmp_path: Path) -> None:
    folder = save(tmp_path, 4, devices=2)
    said = refusal(tmp_path, 4)
    for part in ("saved on 2 devices", "this run has 4", f"ACTOR_MODEL_PATH={folder}", "Train on 2", "EXPERIMENT_NAME"):
        assert part in said
    assert "\n" not in said


def test_a_checkpoint_without_a_part_that_is_asked_for(tmp_path: Path) -> None:
    save(tmp_path, 4, devices=2, parts=("model", "extra_state"))
    said = refusal(tmp_path)
    assert "optim_world_size_2_rank_0.pt and 1 more files" in said and "load_contents" in said
    check_resume(config(tmp_path, 2, "actor_rollout_ref.actor.checkpoint.load_contents=[model,extra]"))


def test_another_adapter_than_the_one_that_was_trained(tmp_path: Path) -> None:
    save(tmp_path, 4, devices=2, lora_rank=32)
    assert "lora_rank=0: the checkpoint" in refusal(tmp_path) and "rank 32" in refusal(tmp_path)
    check_resume(config(tmp_path, 2, "actor_rollout_ref.model.lora_rank=32"))


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("7")
    assert "names step 7" in refusal(tmp_path) and "begin again" in refusal(tmp_path)
    by_path = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={tmp_path}/global_step_9"]
    assert "there is no checkpoint" in refusal(tmp_path, 2, *by_path)
