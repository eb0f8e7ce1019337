"""A copy in a store is complete or has no manifest, an upload continues where it stopped, and no key leaves the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ditto.run import manifest
from ditto.run.checkpoint import partial_dir, prune, publish
from ditto.run.run_folder import RunFolder
from ditto.run.store import RUN_ID, LooksLikeKey, RunStore, StoreFailed, StoreManifest
from ditto.run.uploads import Uploads
from ditto.settings import BadConfig
from soul.files.line_file import write_lines
from soul.push.keys import like_keys

FILES = ("config.json", "model.safetensors", "actor/optim_world_size_1_rank_0.pt")


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
    yield "s3://bucket/run"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture(params=["memory", "local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    urls = {"memory": "memory://bucket/run", "local": str(tmp_path / "bucket/run")}
    url = urls[request.param] if request.param in urls else request.getfixturevalue("s3")
    store = RunStore(url)
    store.write_manifest(StoreManifest(run="1", experiment="ditto/run"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RUN_ID).write_text("1")
    yield store
    store.files.rm(store.root, recursive=True)


def save(root: Path, step: int, content: str = "weights") -> Path:
    folder = partial_dir(root) / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(f"{content} {step} {name}")
    return publish(root, step)


def fails_after(store: RunStore, files: int, patch: pytest.MonkeyPatch) -> list[str]:
    """Let the store take so many files. Returns the names of those that it takes, as it takes them."""
    taken: list[str] = []
    put = store.files.put_file

    def put_file(source: str, target: str, **how: Any) -> None:
        if len(taken) >= files:
            raise ConnectionResetError("the store hung up")
        put(source, target, **how)
        taken.append(target.rpartition("/")[2])

    patch.setattr(store.files, "put_file", put_file)
    return taken


def fetched(store: RunStore, step: int, root: Path) -> Path:
    root.mkdir(parents=True)
    store.get_checkpoint(step, root)
    return root / f"global_step_{step}"


def test_an_interrupted_upload_continues_where_it_stopped(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "run", 4)
    with monkeypatch.context() as patch:
        fails_after(store, 2, patch)
        with pytest.raises(StoreFailed, match="cannot write global_step_4/.*hung up"):
            store.put_checkpoint(folder)
    assert store.steps() == []
    with monkeypatch.context() as patch:
        taken = fails_after(store, 9, patch)
        assert RunStore(store.url).put_checkpoint(folder)
    assert len(taken) == len(FILES) - 2
    assert store.steps() == [4] and not store.put_checkpoint(folder)
    copy = fetched(store, 4, tmp_path / "copy")
    manifest.check(copy)
    assert sorted(path.name for path in copy.iterdir()) == [
        "actor",
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("interrupted", [True, False])
def test_files_of_two_attempts_at_a_step_are_never_mixed(
    interrupted: bool, store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt's files have the sizes of the first one's."""
    first = save(tmp_path / "run", 8, "weights")
    with monkeypatch.context() as patch:
        fails_after(store, 2 if interrupted else 9, patch)
        if interrupted:
            with pytest.raises(StoreFailed):
                store.put_checkpoint(first)
        else:
            store.put_checkpoint(first)
    first.rename(first.with_name("global_step_8.damaged"))
    store.put_checkpoint(save(tmp_path / "run", 8, "WEIGHTS"))
    copy = fetched(store, 8, tmp_path / "copy")
    assert {(copy / name).read_text().split()[0] for name in FILES} == {"WEIGHTS"}


def test_a_copy_that_is_being_replaced_counts_as_incomplete(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = save(tmp_path / "run", 8, "weights")
    store.put_checkpoint(first)
    first.rename(first.with_name("global_step_8.damaged"))
    remove, removed = store.files.rm_file, list[str]()

    def killed_at_the_second(path: str) -> None:
        if removed:
            raise ConnectionResetError("the process was killed")
        removed.append(path)
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(store.files, "rm_file", killed_at_the_second)
        with pytest.raises(StoreFailed):
            store.put_checkpoint(save(tmp_path / "run", 8, "WEIGHTS"))
    assert removed and store.steps() == []


@pytest.mark.parametrize("card", ["README.md", "lora_adapter/README.md"])
def test_a_card_that_is_written_again_is_copied_alone(
    card: str, store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "run", 5)
    path = folder / card
    path.parent.mkdir(exist_ok=True)
    path.write_text("before the validation")
    assert store.put_checkpoint(folder)
    path.write_text("after the validation")
    with monkeypatch.context() as patch:
        taken = fails_after(store, 1, patch)
        assert store.put_checkpoint(folder) and len(taken) == 1
        assert not store.put_checkpoint(folder) and not RunStore(store.url).put_checkpoint(folder)
    assert (fetched(store, 5, tmp_path / "copy") / card).read_text() == "after the validation"
    path.write_text("sk-1234567890abcdef")
    with pytest.raises(LooksLikeKey, match="README.md looks like a key"):
        store.put_checkpoint(folder)


def test_a_write_to_a_folder_that_is_cut_off_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = RunStore(str(tmp_path / "bucket")), tmp_path / "run"
    folder = save(run, 1)
    (run / "metrics.jsonl").write_text('{"step": 1}\n')
    content = StoreManifest(run="1", experiment="ditto/run")
    store.write_manifest(content)
    store.put_run_files(run)
    (run / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')

    def half(target: str, text: bytes) -> None:
        Path(target).write_bytes(text[: len(text) // 2])
        raise OSError("the disk is gone")

    writes: dict[str, Callable[[], object]] = {
        "pipe_file": lambda: store.write_manifest(content),
        "put_file": lambda: store.put_run_files(run),
    }
    for name, cut_off in writes.items():
        with monkeypatch.context() as patch:
            write = half if name == "pipe_file" else lambda file, target: half(target, Path(file).read_bytes())
            patch.setattr(store.files, name, write)
            with pytest.raises(StoreFailed, match="the disk is gone"):
                cut_off()
        assert store.manifest() == content
    assert (tmp_path / "bucket/metrics.jsonl").read_text() in ('{"step": 1}\n', '{"step": 1}\n{"step": 2}\n')
    store.put_checkpoint(folder)
    (tmp_path / "bucket/global_step_1/README.md.partial").write_text("hal")  # what a kill leaves
    assert not list(fetched(store, 1, tmp_path / "copy").glob("*.partial"))


def test_uploads_run_beside_the_training_and_are_complete_at_its_end(store: RunStore, tmp_path: Path) -> None:
    run = tmp_path / "run"
    uploads = Uploads(store, run, run)
    for step in (1, 2):
        RunFolder(run).write_traces("step", step, [])
        RunFolder(run).log_metrics(step, {"loss": step})
        save(run, step)
        uploads.start()
    (run / "judge_cache.jsonl").mkdir()
    assert uploads.finish() is None
    assert store.steps() == [1, 2] and uploads.metrics() == {"ditto/upload_step": 2, "ditto/upload_failures": 0}
    content = store.manifest()
    assert content is not None and content.run == "1"
    assert set(store.run_files()) == {"metrics.jsonl", "traces/step_000001.jsonl", "traces/step_000002.jsonl"}


def test_a_failed_upload_is_counted_and_said_at_the_end_and_tried_again(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, waits = tmp_path / "run", []
    save(run, 3)
    uploads = Uploads(store, run, run)
    with monkeypatch.context() as patch:
        fails_after(store, 0, patch)
        failed = uploads.finish(waits.append)
    assert failed is not None and failed.exit_code == 1
    for part in ("3 uploads of this run failed", "cannot write global_step_3/", "same command uploads"):
        assert part in str(failed)
    assert waits == [0.0, 10.0, 60.0] and uploads.metrics()["ditto/upload_failures"] == 3
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 3 and all("UPLOAD FAILED: StoreFailed" in error for error in errors)
    assert Uploads(store, run, run).finish(waits.append) is None and store.steps() == [3]


def test_a_store_that_another_run_has_claimed_meanwhile_gets_nothing(store: RunStore, tmp_path: Path) -> None:
    run = tmp_path / "run"
    save(run, 1)
    store.write_manifest(StoreManifest(run="2", experiment="ditto/other"))
    failed = Uploads(store, run, run).finish(lambda _seconds: None)
    assert "holds another run" in str(failed) and store.steps() == []


def test_a_checkpoint_that_is_being_read_is_not_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    prune(tmp_path, 1, in_use={1})
    assert sorted(path.name for path in tmp_path.glob("global_step_*")) == ["global_step_1", "global_step_3"]


def test_no_file_that_looks_like_a_key_is_uploaded(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "a-value-that-has-no-format")
    run = tmp_path / "run"
    (run / "traces").mkdir(parents=True)
    (run / "traces/step_000001.jsonl").write_text("{}\n" * 9 + '{"error": "wrong key: a-value-that-has-no-format"}\n')
    (run / "traces/step_000002.jsonl").write_text('{"error": "https://me:hunter2-hunter2@host/v1 is down"}\n')
    (run / "metrics.jsonl").write_text('{"step": 1}\n')
    folder = save(run, 1, "sk-1234567890abcdef")
    uploads = Uploads(store, run, run)
    failed = uploads.finish()
    assert failed is not None and "config.json looks like a key or a password (line 1)" in str(failed)
    assert uploads.failures == 3
    with pytest.raises(LooksLikeKey):
        store.put_checkpoint(folder)
    everything = b"".join(store.files.cat(store.files.find(store.root)).values())
    assert b'{"step": 1}' in everything
    assert not any(key in everything for key in (b"no-format", b"hunter2", b"sk-1234"))


def test_keys_are_looked_for_in_the_columns_of_rows(tmp_path: Path) -> None:
    rows = [{"extra": {"headers": ["Bearer sk-1234567890abcdef"]}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    pq.write_table(pa.Table.from_pylist([{"extra": {"headers": ["none"]}}]), tmp_path / "plain.parquet")
    write_lines(tmp_path / "packed.jsonl", ["{}", '{"text": "sk-1234567890abcdef"}'], pack_above_mb=0)
    names = ["rows.parquet", "plain.parquet", "packed.jsonl.gz"]
    assert like_keys(tmp_path, names) == {"rows.parquet": "row 0", "packed.jsonl.gz": "line 2"}


@pytest.mark.parametrize(
    "url, said",
    [
        ("s3://AKIAXXXXXXXXXXXXXXXX:very-secret-value@bucket/run", "Keys come from the environment"),
        ("s3://bucket/run?secret=very-secret-value", "Keys come from the environment"),
        ("nosuchstore://bucket/run", "Use an address that fsspec knows"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said) as refused:
        RunStore(url)
    assert "very-secret" not in str(refused.value)
