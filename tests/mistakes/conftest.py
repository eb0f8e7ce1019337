"""Files and folders that users name by mistake, made once; and how a command with a mistake must end."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sft.distill.sampling import SOURCES
from soul.examples.__main__ import write
from tests.mistakes.mistake import AssertRefused, AssertStops, Main, Mistake, assert_one_paragraph, run_in_process
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import sample

DAMAGES = {  # name of a run -> the file that is damaged in it, and what it holds then; None: it is missing
    "run_without_chosen": ("chosen.json", None),
    "run_with_a_list": ("chosen.json", b"[1]"),
    "run_without_model": ("settings.json", b"{}"),
    "run_with_broken_sample": ("samples.jsonl", b"\xff\xfe\n"),
}
MODELS = {  # name of a folder -> its files
    "no_weights": {"config.json": b"{}"},
    "bad_config": {"config.json": b"{", "model.safetensors": b"x"},
    "short_weights": {
        "config.json": b"{}",
        "model.safetensors": (48).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","data_offsets":[0,4000]}}   '
        + bytes(9),
    },
    "lost_shard": {
        "config.json": b"{}",
        "model.safetensors.index.json": b'{"weight_map": {"a": "model-00001-of-00002.safetensors"}}',
    },
    "lost_checkpoint": {"latest_checkpointed_iteration.txt": b"50"},
    "adapter_without_base": {"adapter_config.json": b"{}"},
    "adapter_without_weights": {"adapter_config.json": b'{"base_model_name_or_path": "owner/model", "r": 8}'},
}
DISTILLED = {  # name of an --out -> the file that says what was sampled there
    "distilled_text": b"hello",
    "distilled_entry": b'{"experts": [3]}',
}
TRACED = {"traced_text": b"hello\n"}  # run -> its trace of a step
TRAININGS = {  # run -> its metrics
    "training": b'{"step": 1, "ditto/reward_draft": 0.5}\n',
    "torn_training": b'{"step": 1, "ditto/reward_draft": 0.5}\n{"step": 2, "dit',
}
TEXTS = {
    "text.json": b"hello",
    "list.json": b"[]",
    "object.json": b"{}",
    "null.json": b"null",
    "deep.json": b"[" * 100_000,
    "lines.jsonl": b'{"a": 1}\n',
    "bad_lines.jsonl": b'{"a": 1}\nhello\n',
    "empty.csv": b"",
    "file": b"x",
}


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> path of everything above, of task files and of runs."""
    root = tmp_path_factory.mktemp("mistakes")
    write(["hitom"], 3, root / "hitom.parquet")
    write(["sotopia"], 2, root / "sotopia.parquet")
    whole = (root / "hitom.parquet").read_bytes()
    (root / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (root / "folder.parquet").mkdir()
    (root / "empty_folder").mkdir()
    pq.write_table(pa.table({"a": [1]}), root / "columns.parquet")
    pq.write_table(pq.read_table(root / "hitom.parquet").slice(0, 0), root / "no_rows.parquet")
    for name, text in TEXTS.items():
        (root / name).write_bytes(text)
    for name, content in DISTILLED.items():
        (root / name / "samples").mkdir(parents=True)
        (root / name / SOURCES).write_bytes(content)
    for name, content in TRACED.items():
        (root / name / "traces").mkdir(parents=True)
        (root / name / "traces" / "step_1.jsonl").write_bytes(content)
    for name, content in TRAININGS.items():
        (root / name).mkdir()
        (root / name / "metrics.jsonl").write_bytes(content)
    for name, files in MODELS.items():
        for file, content in files.items():
            (root / name).mkdir(exist_ok=True)
            (root / name / file).write_bytes(content)
    finished_run(root / "run", [sample(1.0, number) for number in range(3)])
    finished_run(root / "other_run", [sample(0.0, number) for number in range(3)], n=2)
    finished_run(root / "run_of_other_rows", [sample(1.0, number) for number in range(10, 12)])
    for name, (file, content) in DAMAGES.items():
        shutil.copytree(root / "run", root / name)
        (root / name / file).unlink()
        if content is not None:
            (root / name / file).write_bytes(content)
    label = {"conversation_id": 1, "real": [], "simulated": [], "human_score": 0.5}
    (root / "labels.jsonl").write_text(json.dumps(label) + "\n")
    return {path.name: path for path in root.iterdir()} | {"tmp": root}


@pytest.fixture
def assert_stops(
    places: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AssertStops:
    """Call a command's `main` with a mistake: it ends with one paragraph."""

    def stops(main: Main, mistake: Mistake) -> None:
        assert_one_paragraph(run_in_process(main, mistake, monkeypatch, capsys, places), mistake, places)

    return stops


@pytest.fixture
def assert_refused(
    places: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    assert_stops: AssertStops,
) -> AssertRefused:
    """Call a module with a mistake: it ends with one paragraph, and leaves no file in its folder or in `{tmp}`."""

    def refused(module: str, mistake: Mistake) -> None:
        monkeypatch.chdir(tmp_path)
        before = sorted(places["tmp"].rglob("*"))
        assert_stops(importlib.import_module(module).main, mistake)
        assert list(tmp_path.iterdir()) == [] and sorted(places["tmp"].rglob("*")) == before

    return refused
