"""Weights & Biases: what was logged is read back with the client's own reader."""

import json
import os
import struct
import subprocess
import sys

import pytest

from soul.evaluate.numbers.results import summarise
from soul.evaluate.wandb_log import scalars
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import numbered

REWARDS = [1.0, 0.0, 1.0, 1.0, None]


@pytest.fixture
def run(tmp_path):
    lines = numbered(REWARDS) + numbered([0.25, 0.5], of="sotopia") + numbered([None], of="coser")
    lines[0].draft.critique = lines[5].draft.critique = "half of a pair: \ud83d"
    lines[5].draft.seats = {"policy": [{"role": "assistant", "content": "half of a pair: \ud83d"}]}
    return finished_run(tmp_path / "run-1", lines)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_scalars_are_the_tables_numbers_and_know_what_is_missing(run):
    found = scalars(summarise(run.samples, run.sets))
    assert found["hitom/score"] == pytest.approx(75.0) and found["hitom/invalid"] == 1
    assert "hitom/score_low" not in found  # four rows have no interval
    assert (found["hitom/score_bound_low"], found["hitom/score_bound_high"]) == pytest.approx((60.0, 80.0))
    assert found["hitom/invalid_share"] == pytest.approx(0.2)
    assert "coser/score" not in found and found["coser/invalid_share"] == 1.0
    assert found["average/macro"] == pytest.approx((75.0 + 37.5) / 2) and found["average/macro_sets"] == 2
    assert found["hitom/cost_usd"] == pytest.approx(5 * 0.75)
    assert all(isinstance(value, float) for value in found.values())


def wandb_records(file):
    """The client's messages in its offline file: a header, then LevelDB's log format in blocks of 32 KiB. (The
    client has no reader of it in Python any more.)"""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(parts)
            parts = b""


@pytest.mark.e2e  # wandb's own processes
def test_wandb_offline_run_holds_numbers_tables_and_settings(run, tmp_path):
    """In a process of its own, as the client leaves threads and a service behind; read with the client's own reader."""
    pytest.importorskip("wandb")
    folder = tmp_path / "logs"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    environment |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    folder.mkdir()
    words = [str(run.folder), "--out", str(folder), "--step", "50", "--samples", "3"]
    command = [sys.executable, "-m", "soul.evaluate.wandb_log", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (file,) = folder.rglob("*.wandb")
    assert str(file.parent) in done.stdout
    history, config = {}, {}
    for record in wandb_records(file):
        for item in record.history.item:
            history["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
    assert history["soul/hitom/score"] == 75.0 and history["soul/average/macro"] == pytest.approx(56.25)
    assert (history["soul/checkpoint_step"], history["soul/samples_logged"], history["soul/samples"]) == (50, 3, 8)
    assert config["policy"]["model"] == "under-test" and config["limit"] == 100
    (samples,) = folder.rglob("sample_table*.table.json")
    table = read(samples)
    assert [row[0] for row in table["data"]] == ["hitom", "sotopia", "coser"]
    assert table["data"][2][table["columns"].index("failure")] == "judge: timeout"
    assert table["data"][2][table["columns"].index("reward")] is None
