"""Which checkpoint a run resumes from, decided before an engine starts; never step 0 over an existing run."""

import json
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.resume import apply_resume, check_resume
from ditto.run import manifest
from ditto.run.checkpoint import NoCompleteCheckpoint
from ditto.run.live_traces import open_live
from ditto.run.manifest import DamagedCheckpoint
from ditto.run.run_folder import RunFolder
from ditto.settings import BadConfig
from tests.ditto.run.test_run_folder import record

PARTS = ("model", "optim", "extra_state")


def save(run: Path, step: int, devices: int, parts: tuple[str, ...] = PARTS, lora_rank: int = 0) -> Path:
    """A checkpoint as verl names its files, with little in them."""
    actor = run / f"global_step_{step}" / "actor"
    actor.mkdir(parents=True)
    for part in parts:
        for rank in range(devices):
            torch.save(step, actor / f"{part}_world_size_{devices}_rank_{rank}.pt")
    if lora_rank:
        (actor / "lora_train_meta.json").write_text(json.dumps({"r": lora_rank, "lora_alpha": 2 * lora_rank}))
    manifest.write(actor.parent)
    (run / "latest_checkpointed_iteration.txt").write_text(str(step))
    return actor.parent


def config(run: Path, devices: int = 2, *words: str) -> DictConfig:
    """The keys that the check reads, with some words of a command line on top."""
    trainer = {"nnodes": 1, "n_gpus_per_node": devices, "default_local_dir": str(run), "resume_mode": "auto"}
    base = {
        "trainer": trainer | {"resume_from_path": None},
        "run": {"dir": str(run)},
        "algorithm": {"objective": "ditto", "sdpo": {"teacher": "ema"}},
        "actor_rollout_ref": {"model": {"lora_rank": 0, "lora_alpha": 64, "path": "models/base"}},
    }
    return DictConfig(OmegaConf.merge(base, OmegaConf.from_dotlist(list(words))))


def by_path(folder: Path) -> list[str]:
    return ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]


def trained(run: Path, steps: int) -> None:
    """The traces and metrics of that many steps, and of a validation of each."""
    folder = RunFolder(run)
    for step in range(1, steps + 1):
        folder.write_traces("step", step, [record("a")])
        folder.write_traces("val", step, [record("v")])
        folder.log_metrics(step, {"loss": step})


def refusal(run: Path, devices: int = 2, *words: str) -> str:
    with pytest.raises(BadConfig) as refused:
        check_resume(config(run, devices, *words))
    return str(refused.value)


def test_the_same_devices_resume_and_a_new_run_begins(tmp_path: Path) -> None:
    check_resume(config(tmp_path))
    folder = save(tmp_path, 4, devices=2)
    check_resume(config(tmp_path))
    check_resume(config(tmp_path, 1, "trainer.nnodes=2"))
    check_resume(config(tmp_path / "new", 8, "trainer.resume_mode=disable"))
    check_resume(config(tmp_path / "new", 2, *by_path(folder)))


def test_the_queue_of_an_asynchronous_run_keeps_its_number_of_storage_units(tmp_path: Path) -> None:
    units = save(tmp_path, 4, devices=2) / "transfer_queue" / "simple_storage"
    units.mkdir(parents=True)
    (units / "storage_unit_info.json").write_text(
        json.dumps([{"position": place, "storage_unit_id": "x"} for place in (0, 1)])
    )
    settled = config(tmp_path, 8, "transfer_queue.backend.SimpleStorage.num_data_storage_units=8")
    apply_resume(settled)
    assert settled.transfer_queue.backend.SimpleStorage.num_data_storage_units == 2


def test_a_checkpoint_without_a_part_that_is_asked_for(tmp_path: Path) -> None:
    save(tmp_path, 4, devices=2, parts=("model", "extra_state"))
    said = refusal(tmp_path)
    assert "optim_world_size_2_rank_0.pt and 1 more files" in said and "ACTOR_MODEL_PATH=" in said


def test_another_adapter_than_the_one_that_was_trained(tmp_path: Path) -> None:
    save(tmp_path, 4, devices=2, lora_rank=32)
    assert "lora_rank=0: the checkpoint" in refusal(tmp_path) and "lora_rank=32" in refusal(tmp_path)
    rank, alpha = "actor_rollout_ref.model.lora_rank=32", "actor_rollout_ref.model.lora_alpha=32"
    check_resume(config(tmp_path, 2, rank))
    assert "lora_alpha=32: the checkpoint" in refusal(tmp_path, 2, rank, alpha)


def test_a_base_teacher_must_be_in_the_checkpoint(tmp_path: Path) -> None:
    actor = save(tmp_path, 4, devices=2) / "actor"
    base = ("algorithm.objective=sdpo_token", "algorithm.sdpo.teacher=base")
    assert "the weights that it began with are not known" in refusal(tmp_path, 2, *base)
    check_resume(config(tmp_path, 2, "algorithm.objective=sdpo_token", "algorithm.sdpo.teacher=live"))
    check_resume(config(tmp_path, 2, "algorithm.objective=ditto", "algorithm.sdpo.teacher=base"))
    for rank in range(2):
        (actor / f"teacher_world_size_2_rank_{rank}.pt").touch()
    manifest.write(actor.parent)
    check_resume(config(tmp_path, 2, *base))


def test_an_adapter_alone_continues_on_its_own_base_only(tmp_path: Path) -> None:
    adapter = save(tmp_path, 4, devices=2, lora_rank=32) / "lora_adapter" / "adapter_config.json"
    adapter.parent.mkdir()
    rank = "actor_rollout_ref.model.lora_rank=32"
    for base, path in (("/elsewhere/base", "models/base"), ("Qwen/Qwen3-8B", "/models/Qwen3-8B")):
        adapter.write_text(json.dumps({"base_model_name_or_path": base}))
        manifest.write(adapter.parents[1])
        check_resume(config(tmp_path, 2, rank, f"actor_rollout_ref.model.path={path}"))
    said = refusal(tmp_path, 2, rank, "actor_rollout_ref.model.path=/models/Qwen3-4B")
    assert "holds an adapter of Qwen/Qwen3-8B" in said
    assert f"model.lora_adapter_path={adapter.parent} and another" in refusal(tmp_path)  # it is no model path
    (adapter.parents[1] / "model.safetensors").touch()  # with the whole model beside it, the name does not matter
    manifest.write(adapter.parents[1])
    check_resume(config(tmp_path, 2, rank, "actor_rollout_ref.model.path=/models/Qwen3-4B"))


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no checkpoint" in refusal(tmp_path, 2, *by_path(tmp_path / "global_step_9"))
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("7")
    with pytest.raises(NoCompleteCheckpoint, match=r"names it, but it is missing.*never overwrites"):
        check_resume(config(tmp_path))


def test_the_run_loads_the_newest_whole_checkpoint_and_nothing_later_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (2, 4, 6):
        save(tmp_path, step, devices=2)
    trained(tmp_path, 7)
    (tmp_path / "global_step_6" / "actor" / "model_world_size_2_rank_1.pt").write_bytes(b"short")
    settled = config(tmp_path)
    assert check_resume(settled).step == 4
    assert (tmp_path / "global_step_6").exists() and settled.trainer.resume_mode == "auto"  # a check changes nothing
    apply_resume(settled)
    assert settled.trainer.resume_mode == "resume_path"
    assert settled.trainer.resume_from_path == str(tmp_path / "global_step_4")
    assert (
        "Skipped the damaged checkpoint" in caplog.text
        and "global_step_6" in caplog.text
        and "5 bytes instead of" in caplog.text
    )
    assert (tmp_path / "global_step_6.damaged").exists() and not (tmp_path / "global_step_6").exists()
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "4"
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
    names = sorted(path.name for path in (tmp_path / "traces").glob("*.jsonl"))
    assert names == [f"{split}_{step:06d}.jsonl" for split in ("step", "val") for step in (1, 2, 3, 4)]
    (replaced,) = (tmp_path / "replaced").iterdir()
    assert [json.loads(line)["step"] for line in (replaced / "metrics.jsonl").read_text().splitlines()] == [5, 6, 7]
    assert len(list((replaced / "traces").iterdir())) == 6
    assert RunFolder(tmp_path).rewind(4) is None


def test_a_run_without_a_checkpoint_yet_begins_again_and_keeps_its_first_attempt(tmp_path: Path) -> None:
    trained(tmp_path, 1)
    settled = config(tmp_path)
    apply_resume(settled)
    assert settled.trainer.resume_mode == "disable" and settled.trainer.resume_from_path is None
    assert (tmp_path / "metrics.jsonl").read_text() == "" and list((tmp_path / "replaced").glob("*/metrics.jsonl"))


@pytest.mark.parametrize(
    "mark",
    ["global_step_4", "global_step_4.damaged", ".partial", "traces/val_000000.jsonl", "metrics.jsonl"],
)
def test_a_new_run_is_refused_over_an_existing_one(tmp_path: Path, mark: str) -> None:
    open_live(tmp_path)  # a run that ended before its first step has made this folder
    check_resume(config(tmp_path, 2, "trainer.resume_mode=disable"))
    (tmp_path / mark).mkdir()
    said = refusal(tmp_path, 2, "trainer.resume_mode=disable")
    for part in (f"{tmp_path / mark}", "another EXPERIMENT_NAME", "move", "trainer.resume_mode=auto"):
        assert part in said


def test_a_named_checkpoint_is_checked_too(tmp_path: Path) -> None:
    folder = save(tmp_path, 4, devices=2)
    (folder / "actor" / "optim_world_size_2_rank_0.pt").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"resume_from_path=.*lacks actor/optim.*resume_mode=auto"):
        check_resume(config(tmp_path / "new", 2, *by_path(folder)))


def test_a_run_that_goes_back_does_not_mix_with_its_later_checkpoints(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first, last = save(run, 2, devices=2), save(run, 4, devices=2)
    assert check_resume(config(run, 2, *by_path(last))).folder == last
    said = refusal(run, 2, *by_path(first))
    assert "global_step_4" in said and "resume_mode=auto" in said and "EXPERIMENT_NAME" in said
    save(tmp_path / "other", 1, devices=2)
    assert "global_step_1" in refusal(tmp_path / "other", 2, *by_path(last))
