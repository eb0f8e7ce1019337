"""Folders of one run, merged: each session and step once, contradictions refused, the sources untouched."""

import json

import pytest

from soul.files.line_file import packed_form, write_lines
from soul.merge import main
from soul.record import read_records
from tests.soul.figures.made_up_runs import training


@pytest.fixture
def nodes(tmp_path):
    """Two folders of a run of four steps. Both hold step 2, one of them packed."""
    whole = training(tmp_path / "whole", 0, steps=4)
    metrics = (whole / "metrics.jsonl").read_text().splitlines(keepends=True)
    for name, steps in (("a", (1, 2)), ("b", (2, 3, 4))):
        node = tmp_path / name
        for step in steps:
            source = whole / "traces" / f"step_{step:06d}.jsonl"
            limit = 0.0 if name == "b" else None
            write_lines(node / "traces" / source.name, source.read_text(encoding="utf-8").splitlines(), limit)
        (node / "metrics.jsonl").write_text("".join(metrics[step - 1] for step in steps))
        (node / "run.json").write_text(json.dumps({"objective": "ditto", "resumed": [1] * len(steps), "node": name}))
    return whole, tmp_path / "a", tmp_path / "b"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def records(path):
    return [line.record for line in read_records(path)]


def test_each_session_and_each_step_is_there_once(nodes, tmp_path, capsys):
    whole, a, b = nodes
    with (a / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "ditto/rew')  # torn
    with (a / "traces" / "step_000001.jsonl").open("a") as file:
        file.write('{"task": ')
    before, out = (contents(a), contents(b)), tmp_path / "out"
    assert main([str(a), str(b), "--out", str(out)]) == 0
    assert "4 steps of metrics; 4 trace files with 64 sessions, 16 left out" in capsys.readouterr().out
    assert (out / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    for step in range(1, 5):
        name = f"step_{step:06d}.jsonl"
        merged = out / "traces" / name if step == 1 else packed_form(out / "traces" / name)
        assert records(merged) == records(whole / "traces" / name)
    assert json.loads((out / "run.json").read_text())["node"] == "b"
    assert (contents(a), contents(b)) == before
    assert main([str(a), "--out", str(out)]) == 2 and "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("longer", ["a", "b"])
def test_a_step_that_one_folder_validated_gets_its_numbers_of_the_validation(nodes, tmp_path, longer):
    """A step is published before its validation, whose numbers are added to its line."""
    whole, a, b = nodes
    file = tmp_path / longer / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    (second,) = (line for line in lines if line["step"] == 2)
    second["val/hitom/n"] = 4
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main([str(a), str(b), "--out", str(tmp_path / "out")]) == 0
    expected = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    expected[1]["val/hitom/n"] = 4
    merged = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in merged] == expected


def change_metrics(a):
    lines = (a / "metrics.jsonl").read_text().splitlines()
    changed = json.loads(lines[1]) | {"ditto/reward_draft": 9.0}
    (a / "metrics.jsonl").write_text(f"{lines[0]}\n{json.dumps(changed)}\n")


def change_session(a):
    path = a / "traces" / "step_000002.jsonl"
    first, *others = records(path)
    write_lines(path, [record.to_line() for record in (first.model_copy(update={"redactions": 7}), *others)])


def change_objective(a):
    (a / "run.json").write_text('{"objective": "grpo"}')


@pytest.mark.parametrize(
    "change, message",
    [
        (change_metrics, "Step 2 has other numbers in"),
        (change_session, "has other contents in"),
        (change_objective, "folders of different runs: objective is 'grpo'"),
    ],
)
def test_folders_that_contradict_each_other_are_refused(nodes, tmp_path, capsys, change, message):
    _, a, b = nodes
    change(a)
    before = sorted(tmp_path.iterdir())
    assert main([str(a), str(b), "--out", str(tmp_path / "out")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(tmp_path.iterdir()) == before  # nothing half merged


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty"), "--out", str(tmp_path / "out")]) == 2
    assert "No folder has traces or metrics" in capsys.readouterr().err
