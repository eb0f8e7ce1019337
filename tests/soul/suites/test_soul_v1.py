"""Suites are frozen: what a suite's name means depends on no registered task."""

import hashlib
import json

import pytest

from soul import tasks
from soul.errors import BadSettings
from soul.evaluate.run.settings import find_sets
from soul.suites import SUITES, soul_v1, suite


def test_the_sets_of_version_1_never_change():
    parts = [list(soul_v1.SETS.items()), soul_v1.PAPER, soul_v1.PAPER_ROWS, list(soul_v1.DIMENSIONS.items())]
    assert hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16] == "c399789dc8f69e9d"


def test_a_registered_task_is_in_no_suite(monkeypatch, tmp_path):
    before = {name: each.sets for name, each in SUITES.items()}
    for each in soul_v1.SETS.values():
        (tmp_path / "sim_eval_data" / f"{each.file}.parquet").parent.mkdir(exist_ok=True)
        (tmp_path / "sim_eval_data" / f"{each.file}.parquet").touch()
    (tmp_path / "sim_eval_data" / "mine_val.parquet").touch()
    monkeypatch.setattr(tasks, "_external", lambda: {"mine": None})
    assert "mine" in tasks.names()
    assert {name: suite(name).sets for name in SUITES} == before
    assert list(find_sets((), tmp_path).found) == list(find_sets(suite("soul_v1").sets, tmp_path).found)
    assert list(find_sets(["mine"], tmp_path).found) == ["mine"]  # by its name alone


def test_an_unknown_suite_is_refused():
    with pytest.raises(BadSettings, match="'papers'. Choose paper or soul_v1, or list sets, for example fantom,hitom"):
        suite("papers")
