"""The same command with an empty disk continues from the store, and never from another run's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.resume import apply_resume, check_resume
from ditto.run import manifest
from ditto.run.checkpoint import NoCompleteCheckpoint
from ditto.run.run_folder import RunFolder
from ditto.run.store import RunStore, StoreFailed
from ditto.run.store_resume import ForeignStore, check_address, prepare_store
from ditto.run.uploads import Uploads
from ditto.settings import BadConfig
from tests.ditto.config_checks.test_resume_check import config as base_config
from tests.ditto.config_checks.test_resume_check import save, trained

URL = "memory://bucket/a-run"


@pytest.fixture(autouse=True)
def empty_store() -> Iterator[None]:
    yield
    files = fsspec.filesystem("memory")
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)


def config(run: Path, *words: str, url: str = URL) -> DictConfig:
    store = {"trainer": {"upload_to": url, "project_name": "ditto", "experiment_name": "one"}}
    return DictConfig(OmegaConf.merge(base_config(run, 2, *words), store, OmegaConf.from_dotlist(list(words))))


def uploaded(run: Path, *steps: int, url: str = URL) -> None:
    """A run with a checkpoint of each step, and its copy."""
    prepare_store(config(run, url=url))
    for step in steps:
        save(run, step, devices=2)
    trained(run, max(steps))
    uploads = Uploads.from_config(config(run, url=url))
    assert uploads is not None and uploads.finish() is None


def damage(folder: Path) -> None:
    (folder / "actor" / "model_world_size_2_rank_1.pt").write_bytes(b"short")


def damage_copy(step: int) -> None:
    store = RunStore(URL)
    store.files.pipe_file(f"{store.root}/global_step_{step}/actor/model_world_size_2_rank_1.pt", b"short")


def resumed(run: Path, url: str = URL) -> str:
    """Prepare the run as a start does. Returns the checkpoint that it resumes from."""
    settled = config(run, url=url)
    check_resume(settled)
    prepare_store(settled)
    apply_resume(settled)
    return str(settled.trainer.resume_from_path)


def test_an_empty_disk_continues_after_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    uploaded(run, 2, 4, 6)
    damage_copy(6)
    before = RunFolder(run).metrics()
    shutil.rmtree(run)
    assert resumed(run) == str(run / "global_step_4")
    manifest.check(run / "global_step_4")
    assert RunFolder(run).metrics() == {step: numbers for step, numbers in before.items() if step <= 4}
    assert sorted(path.name for path in (run / "traces").glob("step_*")) == [
        f"step_00000{n}.jsonl" for n in range(1, 5)
    ]
    assert not list(run.glob("**/*.fetched")) and not (run / ".partial" / "global_step_6").exists()


def test_a_disk_that_is_as_new_is_left_alone_and_an_older_one_gets_the_newer_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    uploaded(run, 2, 4)
    metrics = (run / "metrics.jsonl").stat().st_mtime_ns
    prepare_store(config(run))
    assert (run / "metrics.jsonl").stat().st_mtime_ns == metrics
    shutil.rmtree(run / "global_step_4")
    (run / "latest_checkpointed_iteration.txt").write_text("2")
    prepare_store(config(run))
    manifest.check(run / "global_step_4")
    assert (run / "latest_checkpointed_iteration.txt").read_text() == "4"


def test_a_store_without_a_whole_checkpoint_is_not_trained_over(tmp_path: Path) -> None:
    run = tmp_path / "run"
    uploaded(run, 2, 4)
    for step in (2, 4):
        damage_copy(step)
    shutil.rmtree(run)
    for _ in range(2):
        with pytest.raises(
            NoCompleteCheckpoint, match=r"upload_to=.*a-run.*global_step_4/actor.*global_step_2/actor.*Restore"
        ):
            prepare_store(config(run))
    assert not list(run.glob("**/*.pt"))
    save(run, 1, devices=2)  # with a whole one on the disk the run goes on, as it would without the store
    assert resumed(run) == str(run / "global_step_1")


@pytest.mark.parametrize("whole", [[], [2]])
def test_the_stores_copy_replaces_a_damaged_checkpoint(whole: list[int], tmp_path: Path) -> None:
    run = tmp_path / "run"
    uploaded(run, 2, 4)
    for step in {2, 4} - set(whole):
        damage(run / f"global_step_{step}")
    assert resumed(run) == str(run / "global_step_4")
    manifest.check(run / "global_step_4")
    assert (run / "global_step_4.damaged").is_dir()


def test_a_damaged_checkpoint_stays_if_its_copy_is_damaged_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    uploaded(run, 2, 4)
    damage(run / "global_step_4")
    damage_copy(4)
    assert resumed(run) == str(run / "global_step_2")
    damage(run / "global_step_2")
    damage_copy(2)
    check_resume(config(run))  # it does not ask the store
    with pytest.raises(NoCompleteCheckpoint, match="a-run"):
        prepare_store(config(run))
    with pytest.raises(NoCompleteCheckpoint, match="never overwrites"):
        apply_resume(config(run))
    assert (run / "global_step_2").is_dir()


@pytest.mark.parametrize("folder", [False, True])
def test_characters_of_a_pattern_in_an_address_mean_themselves(folder: bool, tmp_path: Path) -> None:
    root = f"{tmp_path}/bucket" if folder else "memory://bucket"
    first, second = f"{root}/a-run1", f"{root}/a-run[1]"
    uploaded(tmp_path / "first", 2, url=first)
    uploaded(tmp_path / "second", 2, 4, url=second)
    (tmp_path / "second/global_step_4").rename(tmp_path / "second/global_step_4.old")
    save(tmp_path / "second", 4, devices=2)  # another attempt: replaces the copy
    uploads = Uploads.from_config(config(tmp_path / "second", url=second))
    assert uploads is not None and uploads.finish() is None
    assert RunStore(first).steps() == [2] and RunStore(second).steps() == [2, 4]
    shutil.rmtree(tmp_path / "second")
    assert resumed(tmp_path / "second", second) == str(tmp_path / "second/global_step_4")


@pytest.mark.parametrize(
    "words", [["trainer.experiment_name=two"], ["trainer.project_name=other"], ["trainer.resume_mode=disable"]]
)
def test_a_store_of_another_run_is_refused(words: list[str], tmp_path: Path) -> None:
    uploaded(tmp_path / "run", 2)
    with pytest.raises(ForeignStore, match="another address|an address of its own"):
        prepare_store(config(tmp_path / "new", *words))
    assert not list((tmp_path / "new").glob("global_step_*"))


def test_a_disk_with_another_run_refuses_a_store_in_use(tmp_path: Path) -> None:
    uploaded(tmp_path / "run", 2)
    save(tmp_path / "other", 1, devices=2)  # a run without a store
    with pytest.raises(ForeignStore, match="ditto/one, and .*other holds another run"):
        prepare_store(config(tmp_path / "other"))
    prepare_store(config(tmp_path / "third", url="memory://bucket/third"))
    with pytest.raises(ForeignStore):
        prepare_store(config(tmp_path / "third"))
    prepare_store(config(tmp_path / "fourth", "trainer.experiment_name=two", url="memory://bucket/third"))  # empty


def test_names_of_a_store_stay_in_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded(tmp_path / "run", 2)
    sizes = RunStore._sizes
    monkeypatch.setattr(RunStore, "_sizes", lambda *given, **how: {**sizes(*given, **how), "../../outside.pt": 1})
    with pytest.raises(StoreFailed, match="outside of its folder"):
        prepare_store(config(tmp_path / "a" / "b"))
    assert not list(tmp_path.rglob("outside*"))


def test_an_address_without_a_store_or_in_the_runs_own_folder_is_refused(tmp_path: Path) -> None:
    check_address(config(tmp_path / "run"))
    check_address(config(tmp_path / "run", url=str(tmp_path / "run-copy")))
    for folder in (tmp_path / "run", tmp_path / "run" / "copy", tmp_path):
        with pytest.raises(BadConfig, match="contain one another"):
            check_address(config(tmp_path / "run", url=str(folder)))
    fsspec.filesystem("memory").pipe_file("/bucket/a-run/manifest.json", b"{}")
    with pytest.raises(BadConfig, match="is not that of a run"):
        prepare_store(config(tmp_path / "run"))
