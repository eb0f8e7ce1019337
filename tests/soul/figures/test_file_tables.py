"""The tables of task files and of judges against people: numbers that can be counted by hand, and what is missing."""

import csv
import hashlib
import json
from pathlib import Path

import pytest

from soul.examples.__main__ import write
from soul.figures.__main__ import main
from soul.judge.audit.agreement_statistics import Estimate
from soul.judge.audit.human_agreement import Agreement, MetricAgreement
from soul.rows.task_files import read_rows


def lines(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_tables_of_files_count_what_is_in_them(tmp_path: Path) -> None:
    talks, letters, out = tmp_path / "talks.parquet", tmp_path / "letters.parquet", tmp_path / "out"
    write(["mirrorbench"], 9, talks)
    write(["hitom"], 4, letters)
    assert main(["--data", str(talks), str(letters), "--out", str(out)]) == 0
    rows = read_rows([str(talks)])
    found = lines(out / "datasets.csv")
    assert {(line["form"], line["rows"]) for line in found if line["task"] == "hitom" and line["subset"] == "all"} == {
        ("one of several options", "4")
    }
    counted = {line["subset"]: line for line in found if line["task"] == "mirrorbench"}
    for subset in {"all", *(row.row.dataset for row in rows)}:
        own = [row for row in rows if subset in ("all", row.row.dataset)]
        prompts = [sum(len(message["content"]) for message in row.task.prompt(row.row)) for row in own]
        line = counted[subset]
        assert (int(line["rows"]), float(line["mean"])) == (len(own), pytest.approx(sum(prompts) / len(own)))
        assert (float(line["least"]), float(line["most"])) == (min(prompts), max(prompts))
    index = (out / "index.md").read_text()
    assert hashlib.sha256(talks.read_bytes()).hexdigest() in index and "Not drawn" not in index


def agreement(value: float | None) -> Agreement:
    estimate = Estimate(value, None if value is None else value - 0.1, None if value is None else value + 0.1, 40)
    measures = dict.fromkeys(("pearson", "spearman", "kendall"), estimate)
    return Agreement({"gteval": MetricAgreement(40, 2, {}, 0.5, 0.1, 0.6, 0.1, measures, {}, {}, 0.71, None)}, 1, 0)


def test_judges_stand_beside_each_other_with_what_people_agree_on(tmp_path: Path) -> None:
    files = {"good": agreement(0.62), "odd": agreement(None)}
    words = []
    for name, result in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(result.to_json()))  # as soul judge agree writes it
        words.append(f"{name}={tmp_path / name}.json")
    out = tmp_path / "out"
    assert main(["--agreement", *words, "--out", str(out)]) == 0
    table = (out / "agreement.md").read_text()
    assert "| good | gteval | 40 | 2 | 0.62 0.52 to 0.72 |" in table and "| 0.71 |" in table
    assert "| odd | gteval | 40 | 2 | - | - | - | - | - | 0.71 |" in table and "pairwise" not in table
    assert hashlib.sha256((tmp_path / "good.json").read_bytes()).hexdigest() in (out / "agreement.tex").read_text()
