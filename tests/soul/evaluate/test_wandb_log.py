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
    return finished_run(tmp_path / "run-1", lines)


def test_scalars_are_the_tables_numbers_and_know_what_is_missing(run):
    found = scalars(summarise(run.samples, run.sets))
    assert found["hitom/score"] == pytest.approx(75.0)
    assert "hitom/score_low" not in found  # four rows have no interval
    assert found["hitom/invalid_share"] == pytest.approx(0.2)
    assert "coser/score" not in found and found["coser/invalid_share"] == 1.0
    assert found["average/macro"] == pytest.approx((75.0 + 37.5) / 2)
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
def test_wandb_offline_run_holds_numbers_a_table_and_settings(run, tmp_path):
    """In a process of its own, as the client leaves threads and a service behind; read with the client's own reader."""
    pytest.importorskip("wandb")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    environment |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    words = [str(run.folder), "--step", "50"]
    command = [sys.executable, "-m", "soul.evaluate.wandb_log", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (file,) = run.folder.rglob("*.wandb")
    assert str(file.parent) in done.stdout
    history, config = {}, {}
    for record in wandb_records(file):
        for item in record.history.item:
            history["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
    assert history["soul/hitom/score"] == 75.0 and history["soul/average/macro"] == pytest.approx(56.25)
    assert history["soul/checkpoint_step"] == 50
    assert config["policy"]["model"] == "under-test" and config["limit"] == 100
    (table,) = run.folder.rglob("table*.table.json")
    assert {row[0] for row in json.loads(table.read_text())["data"]} > {"sotopia", "coser", "hitom"}
