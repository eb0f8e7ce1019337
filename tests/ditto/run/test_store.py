"""A copy in a store is whole or has no manifest, and an empty disk continues from it, never from another run's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.resume import apply_resume, check_resume
from ditto.run import manifest
from ditto.run.checkpoint import prune
from ditto.run.run_folder import RunFolder
from ditto.run.store import Store, StoreFailed, Uploads, prepare_store
from ditto.settings import BadConfig
from tests.ditto.config_checks.test_resume_check import config as base_config
from tests.ditto.config_checks.test_resume_check import save, trained


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address in an S3-compatible server of this process."""
    server = pytest.importorskip("moto.server", reason="needs pip install 'moto[server]'").ThreadedMotoServer(
        "127.0.0.1", 0, verbose=False
    )
    s3fs = pytest.importorskip("s3fs", reason="needs pip install s3fs")
    server.start()
    host, port = server.get_host_and_port()
    environment = {"ACCESS_KEY_ID": "testing", "SECRET_ACCESS_KEY": "testing-only", "DEFAULT_REGION": "us-east-1"}
    for name, value in {**environment, "ENDPOINT_URL": f"http://{host}:{port}"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().makedirs("bucket", exist_ok=True)
    yield "s3://bucket/run[1]"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture(params=["memory", "local", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    urls = {"memory": "memory://bucket/run[1]", "local": str(tmp_path / "bucket/run[1]")}
    url = urls[request.param] if request.param in urls else request.getfixturevalue("s3")
    yield url
    store = Store(url)
    store.remove(store.names())


def config(run: Path, url: str, *words: str) -> DictConfig:
    store = {"trainer": {"upload_to": url, "project_name": "ditto", "experiment_name": "one"}}
    return DictConfig(OmegaConf.merge(base_config(run, 2), store, OmegaConf.from_dotlist(list(words))))


def uploads_of(run: Path, url: str) -> Uploads:
    uploads = Uploads.from_config(config(run, url))
    assert uploads is not None
    return uploads


def uploaded(run: Path, url: str, *steps: int) -> Store:
    """A run with a checkpoint of each step, and its copy."""
    prepare_store(config(run, url))
    for step in steps:
        save(run, step, devices=2)
    trained(run, max(steps))
    assert uploads_of(run, url).finish() is None
    return Store(url)


def resumed(run: Path, url: str) -> str:
    """Prepare the run as a start does. Returns the checkpoint that it resumes from."""
    settled = config(run, url)
    check_resume(settled)
    prepare_store(settled)
    apply_resume(settled)
    return str(settled.trainer.resume_from_path)


def test_an_empty_disk_continues_after_the_newest_whole_checkpoint(url: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    store = uploaded(run, url, 2, 4, 6)
    store.remove(["global_step_6/manifest.json"])  # an upload that was cut off
    before = RunFolder(run).metrics()
    shutil.rmtree(run)
    assert resumed(run, url) == str(run / "global_step_4")
    manifest.check(run / "global_step_4")
    assert RunFolder(run).metrics() == {step: numbers for step, numbers in before.items() if step <= 4}
    traces = sorted(path.name for path in (run / "traces").glob("step_*"))
    assert traces == [f"step_00000{step}.jsonl" for step in range(1, 5)]
    metrics = (run / "metrics.jsonl").stat().st_mtime_ns
    prepare_store(config(run, url))  # a disk with a checkpoint is left alone
    assert (run / "metrics.jsonl").stat().st_mtime_ns == metrics


def test_files_of_two_attempts_at_a_step_are_never_mixed_and_a_failure_is_counted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, waits = tmp_path / "run", list[float]()
    store = uploaded(run, url, 2, 4)
    shutil.rmtree(run / "global_step_4")
    save(run, 4, devices=2)
    uploads, put, taken = uploads_of(run, url), Store.put, list[str]()

    def put_two(store: Store, file: Path, name: str) -> None:
        if name.startswith("global_step") and len(taken) == 2:
            raise ConnectionResetError("the store hung up")
        put(store, file, name)
        taken.extend([name] * name.startswith("global_step"))

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", put_two)
        failed = uploads.finish(waits.append)
    assert isinstance(failed, StoreFailed) and failed.exit_code == 1 and "the store hung up" in str(failed)
    assert waits == [0.0, 10.0, 60.0] and uploads.metrics() == {"ditto/upload_step": 0, "ditto/upload_failures": 3}
    assert store.steps() == [2]  # half-replaced
    assert uploads.finish(waits.append) is None and store.steps() == [2, 4]
    assert store.read("global_step_4/manifest.json") == (run / "global_step_4/manifest.json").read_bytes()


def test_a_damaged_copy_is_named_and_never_trained_on(tmp_path: Path) -> None:
    run, url = tmp_path / "run", str(tmp_path / "store")
    uploaded(run, url, 2)
    (tmp_path / "store/global_step_2/actor/model_world_size_2_rank_1.pt").write_bytes(b"short")
    shutil.rmtree(run)
    with pytest.raises(manifest.DamagedCheckpoint, match="store/global_step_2 to continue from an earlier"):
        prepare_store(config(run, url))
    assert not list(run.glob("global_step_*"))


@pytest.mark.parametrize("word", ["trainer.experiment_name=two", "trainer.resume_mode=disable"])
def test_a_store_of_another_run_is_refused(word: str, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    uploaded(tmp_path / "run", url, 2)
    with pytest.raises(BadConfig, match="holds the run ditto/one, .* is not that run"):
        prepare_store(config(tmp_path / "new", url, word))
    assert not (tmp_path / "new").exists()
    save(tmp_path / "other", 1, devices=2)  # a run that began without a store
    with pytest.raises(BadConfig, match="other is not that run"):
        prepare_store(config(tmp_path / "other", url))


def test_a_checkpoint_that_is_being_read_is_not_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, devices=2)
    prune(tmp_path, 1, in_use={1})
    assert sorted(path.name for path in tmp_path.glob("global_step_*")) == ["global_step_1", "global_step_3"]


def test_an_address_that_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfig, match="Use an address that fsspec knows"):
        Store("nosuchstore://bucket/run")

    def hangs_up(*_: Any) -> None:
        raise ConnectionResetError("it hung up")

    monkeypatch.setattr(Store, "read", hangs_up)
    with pytest.raises(StoreFailed, match="it hung up"):
        prepare_store(config(tmp_path / "run", "memory://bucket/run"))
