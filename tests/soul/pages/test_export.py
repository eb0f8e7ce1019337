"""One file of chosen sessions: which they are, and that the file holds their texts and the run's numbers."""

import base64
import gzip
import json
import re

import pytest

from ditto.run.run_folder import RunFolder
from soul.errors import BadSettings
from soul.pages.export import only_training, write_run_report
from soul.record import Failure
from tests.soul.figures.made_up_runs import session, training


def unpacked(file):
    """Overview, index and texts of an exported file."""
    elements = re.findall(r'<script type="application/gzip" id="([^"]+)">([^<]*)</script>', file.read_text())
    texts = {name: gzip.decompress(base64.b64decode(body)).decode() for name, body in elements}
    parts = [texts[f"part-{place}"] for place in range(sum(name.startswith("part-") for name in texts))]
    lines = [json.loads(line) for part in parts for line in part.split("\n")]
    return json.loads(texts["overview"]), json.loads(texts["index"]), lines


def test_an_export_has_all_numbers_and_the_texts_of_the_telling_sessions(tmp_path):
    run = training(tmp_path / "run", 0, steps=6)
    RunFolder(run).write_traces("step", 7, [session("sotopia", 7, 1, 0, (0.75, 0.8), "Half \ud800 and </script>.")])
    overview, index, sessions = unpacked(write_run_report(run, tmp_path / "new" / "run.html"))
    columns = index["columns"]
    assert columns["step"] == [step for step in range(1, 7) for _ in range(16)] + [7]
    places = [columns["id"].index(number) for number in index["texts"]]
    assert [columns["session"][place] for place in places] == [one["session"] for one in sessions]
    rewards = [one["draft"]["reward"] for one in sessions]
    assert [columns["draft"][place] for place in places] == pytest.approx(rewards, abs=1e-6)
    assert sessions[-1]["draft"]["seats"]["policy"][1]["content"] == "Half \ud800 and </script>."
    assert overview["curves"]["all"]["steps"] == list(range(1, 8)) and overview["metrics"]["steps"] == list(range(1, 7))


def test_the_report_of_a_run_has_the_telling_sessions_of_each_step(tmp_path):
    """Improved, hurt and failed ones, at most three of each; without refined answers the best and the worst drafts."""
    gains = [0.1, 0.4, 0.2, 0.3, 0.0, -0.1, -0.3]
    refined = [session("sotopia", 1, k, 0, (0.5, 0.5 + gain)) for k, gain in enumerate(gains)]
    failed = session("sotopia", 1, 7, 0, (0.5, None)).model_copy(
        update={"feedback_failure": Failure("feedback", "timeout", "late")}
    )
    plain = [session("sotopia", 2, k, 0, (0.1 * k, None)) for k in range(9)]
    folder = RunFolder(tmp_path / "run")
    folder.write_traces("step", 1, [*refined, failed])
    folder.write_traces("step", 2, plain)
    _, index, sessions = unpacked(write_run_report(tmp_path / "run"))
    assert [(one["step"], one["number"]) for one in sessions] == [
        *[(1, k) for k in (1, 2, 3, 5, 6, 7)],
        *[(2, k) for k in (0, 1, 2, 6, 7, 8)],
    ]
    columns = index["columns"]
    assert len(columns["id"]) == 17 and len(index["texts"]) == 12  # the numbers of all, the texts of the telling ones
    pairs = [(a, b) for a, b in zip(columns["draft"], columns["refined"], strict=True) if b is not None]
    assert [sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)] == [4, 2] and len(pairs) == 7


def test_the_folder_of_an_export_has_one_training(tmp_path):
    with pytest.raises(BadSettings, match="there is no training with traces"):
        only_training(tmp_path)
    _, second = (training(tmp_path / "runs" / name, 0, steps=1) for name in ("a", "b"))
    assert only_training(second) == second.resolve()
    with pytest.raises(BadSettings, match=r"pass the folder of one: runs/a, runs/b\."):
        only_training(tmp_path)
