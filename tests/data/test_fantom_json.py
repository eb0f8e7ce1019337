"""FANToM's official file: all scored kinds, whole conversations on one side, what is left out counted."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from data import fantom
from soul.rows.overlap import HeldOut
from soul.rows.task_files import TaskRow, read_rows
from tests.data.fantom_official import entries, entry
from tests.soul.samples import tagged, verdict_of

KINDS = {
    "tom:belief:inaccessible:multiple-choice": 2,
    "tom:answerability:list": 1,
    "tom:answerability:binary": 3,
    "tom:info_accessibility:list": 1,
    "tom:info_accessibility:binary": 3,
}
LONG = "a yes-or-no question whose no only the full conversation shows"


def saved(folder: Path, found: list[dict[str, Any]]) -> Path:
    path = folder / "fantom_v1.json"
    path.write_text(json.dumps(found))
    return path


def rows(folder: Path, *arguments: str, conversations: int = 1) -> list[TaskRow]:
    out = folder / "out.parquet"
    fantom.BUILDER.build(["convert", str(saved(folder, entries(conversations))), *arguments, "--out", str(out)])
    return read_rows([str(out)])


def test_all_scored_kinds_are_read(tmp_path: Path) -> None:
    records, left_out, *_ = fantom.convert_official(saved(tmp_path, [entry(7)]))
    assert Counter(record["question_type"] for record in records) == KINDS
    assert left_out == {LONG: 2}


def test_questions_stand_with_what_they_are_about(tmp_path: Path) -> None:
    subject = "the boat that Ann has painted in year 0, 0 and 0"
    prompts = {row.row.question_type: row.task.prompt(row.row)[0]["content"] for row in reversed(rows(tmp_path))}  # type: ignore[attr-defined]
    for kind, prompt in prompts.items():
        assert (f"Target: What is the colour of {subject}?" in prompt) == ("answerability:" in kind), kind
        information = f"Information: What is the colour of {subject}? {subject} is deep green."
        assert (information in prompt) == ("info_accessibility" in kind), kind


def test_each_kind_is_scored_as_the_official_code_scores_it(tmp_path: Path) -> None:
    for row in rows(tmp_path):
        record: Any = row.row
        if record.kind == "choice":
            right = "AB"[record.correct_answer]
            assert "does not know" in record.answer_choices[record.correct_answer]
            cases = {right: 1, f"({right})": 1, "BA"[record.correct_answer]: 0, "C": 0}
        elif record.kind == "list":  # all who know and nobody else
            cases = {"Ann, Bob": 1, "Bob and Ann": 1, "Ann": 0, "Ann, Bob, Carl": 0, "Carl": 0}
        else:
            right, wrong = (record.correct_answer, {"yes": "no", "no": "yes"}[record.correct_answer])
            cases = {right: 1, right.capitalize(): 1, wrong: 0, "maybe": 0}
        for answer, want in cases.items():
            assert verdict_of(row, tagged(answer)).reward == want, (record.question_type, answer)


def test_the_place_of_the_right_belief_is_shuffled_by_seed(tmp_path: Path) -> None:
    path = saved(tmp_path, entries(60))

    def places(seed: int) -> list[str]:
        records = fantom.convert_official(path, seed).records
        return [r["correct_answer"] for r in records if r["question_type"].endswith("choice")]

    assert places(0) == places(0) != places(1)
    assert 0.4 < sum(map(int, places(0))) / len(places(0)) < 0.6


def test_a_split_shares_no_conversation(tmp_path: Path) -> None:
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    arguments = ["convert", str(saved(tmp_path, entries(9))), "--test-conversations", "4"]
    built = fantom.BUILDER.build([*arguments, "--train-out", str(train), "--val-out", str(val)])
    assert [file.rows for file in built.files] == [100, 80]
    assert not HeldOut(read_rows([str(val)])).overlaps(read_rows([str(train)]))


def test_questions_that_cannot_be_scored_are_counted(tmp_path: Path) -> None:
    odd = entry(0)
    odd["answerabilityQA_list"]["correct_answer"] = []
    odd["infoAccessibilityQAs_binary"][0]["correct_answer"] = "error"
    odd["infoAccessibilityQA_list"] = None
    records, left_out, *_ = fantom.convert_official(saved(tmp_path, [odd]))
    assert len(records) == 7
    assert left_out == {
        LONG: 2,
        "a list question whose answer is nobody": 1,
        "a yes-or-no question whose answer is 'error'": 1,
    }
