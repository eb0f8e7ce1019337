"""UserLLM task files: three sources, made-up assistant turns, openings and second turns of PRISM.

Promise under test: every row is one that the task can play, or is counted with the reason; no person's message is ever
the intent.
"""

import csv
import re
from collections import Counter

import pandas as pd
import pytest

from data import userllm
from data.intents import read_openings
from soul.tasks.userllm import UserLLM
from soul.tasks.userllm_turn import UserLLMRow, choices_mentioned
from tests.data.source_files import needs, refusal, write_lines
from tests.published import KEPT
from tests.soul.samples import DATA

FOLDER = DATA / "userllm"
FILES = sorted([*FOLDER.glob("*.jsonl"), *FOLDER.glob("*.csv")])
needs_records = needs(*FILES)

CSQA = {
    "id": "1",
    "question": "Where does a bat  sleep?",
    "question_concept": "Bat",
    "choices": {"label": ["A", "B", "C"], "text": ["cave", "barn", "night sky"]},
    "answerKey": "A",
}


INTENT = "Gain insight into insect vision."


def records_of(*paths, **options):
    return userllm.convert(paths, **options).records


def with_intents(folder, paths=FILES):
    """The files, and one with an intent for every conversation in them, as `data.intents` writes it."""
    keys = [found.key for path in paths if path.suffix == ".csv" for found in read_openings(path)]
    lines = [{"key": key, "answer": {"intent": INTENT}, **KEPT} for key in keys]
    return [*paths, write_lines(folder / "intents.jsonl", *lines)]


def prism(turns, **other):
    """A record in the form of PRISM's conversations.jsonl: two replies to each turn, the first one chosen."""
    history = []
    for number, text in enumerate(turns):
        history.append({"turn": number, "role": "user", "content": text})
        history += [
            {"turn": number, "role": "model", "content": f"reply {number}{mark}", "if_chosen": mark == "a"}
            for mark in "ab"
        ]
    known = {"conversation_id": "c7", "user_id": "u3", "opening_prompt": turns[0]}
    return {**known, "conversation_history": history, **other}


@needs_records
def test_every_source_gives_rows_that_the_task_can_play(tmp_path):
    task, records = UserLLM(), records_of(*with_intents(tmp_path))
    rows = [UserLLMRow.model_validate(record) for record in records]
    assert [row.index for row in rows] == list(range(len(rows)))
    assert set(Counter(row.source for row in rows)) == {"commonsense_qa", "natural_questions", "prism"}
    for row, record in zip(rows, records, strict=True):
        task.check(row)
        assert len(task.prompt(row)) == 1
        assert (row.conversation == "") == (row.source == "prism")  # the table of openings has no second turns
        if row.source == "commonsense_qa":
            assert choices_mentioned(row.choices, row.question)[0] == 0
            assert choices_mentioned(row.choices, row.conversation)[0] == choices_mentioned(row.choices, "")[1]
        if row.source == "prism":
            assert row.intent == INTENT and not row.is_last_turn
        assert "answer" not in record and "answerKey" not in record


@needs_records
def test_a_sample_of_each_source_is_seeded(tmp_path):
    files = with_intents(tmp_path)
    one = userllm.convert(files, per_source=40)
    assert one == userllm.convert(files[::-1], per_source=40) != userllm.convert(files, per_source=40, seed=1)
    assert set(Counter(r["source"] for r in one.records).values()) == {40}
    assert [r["index"] for r in one.records] == list(range(120))
    whole = userllm.convert(files)
    assert one.left_out.total() == len(whole.records) - 120 + whole.left_out.total()


@needs_records
def test_without_a_judge_the_other_sources_are_built_and_prism_is_counted():
    found = userllm.convert(FILES)
    assert set(Counter(r["source"] for r in found.records)) == {"commonsense_qa", "natural_questions"}
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in FILES if path.suffix == ".jsonl")
    assert found.left_out[userllm.NO_INTENT] == 70 and found.left_out[userllm.OWN_OPTION] == 4
    assert len(found.records) + found.left_out.total() == lines + 70  # every row of every source


@needs_records
def test_a_split_keeps_what_belongs_together(tmp_path, capsys):
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    arguments = ["--per-source", "300", "--train-out", str(train), "--val-out", str(val)]
    userllm.main(["convert", *map(str, FILES), *arguments])
    said = capsys.readouterr().out
    assert said.count("rows=") == 2 and "left out: 70 (PRISM: no intent" in said and "beyond the 300 rows" in said
    sides = [{info["group"] for info in pd.read_parquet(path)["extra_info"]} for path in (train, val)]
    assert sides[0] and sides[1] and not sides[0] & sides[1]
    info = pd.read_parquet(val)["extra_info"][0]
    assert UserLLMRow.model_validate(info).index == info["index"]


def test_a_user_is_on_one_side_of_a_split(tmp_path):
    talks = [prism([f"question {i}"], conversation_id=f"c{i}", user_id=f"u{i % 5}", intent=INTENT) for i in range(40)]
    path, sides = write_lines(tmp_path / "c.jsonl", *talks), (tmp_path / "train.parquet", tmp_path / "val.parquet")
    userllm.main(["convert", str(path), "--train-out", str(sides[0]), "--val-out", str(sides[1])])
    users = [{info["user_id"] for info in pd.read_parquet(side)["extra_info"]} for side in sides]
    assert users[0] | users[1] == {f"u{i}" for i in range(5)} and not users[0] & users[1]


@pytest.mark.parametrize(
    ("count", "first", "later"), [(20, 10, 10), (21, 11, 10), (60, 40, 20), (45, 25, 20), (50, 30, 20), (1, 1, 0)]
)
def test_half_of_prism_are_first_turns_and_half_later_ones(tmp_path, count, first, later):
    talks = [
        prism(["do bees see", "why"] if i % 2 else ["do bees see"], conversation_id=f"c{i}", intent=f"{INTENT} {i}")
        for i in range(40)
    ]
    found = userllm.convert([write_lines(tmp_path / "c.jsonl", *talks)], per_source=count)
    assert Counter(record["turn"] for record in found.records) == +Counter({0: first, 1: later})
    assert found.left_out.total() == 60 - count


def test_commonsense_qa_is_read_in_its_authors_form_and_the_hubs(tmp_path):
    texts = CSQA["choices"]["text"]
    options = [{"label": label, "text": text} for label, text in zip("ABC", texts, strict=True)]
    question = {"stem": CSQA["question"], "question_concept": "Bat", "choices": options}
    (tmp_path / "authors").mkdir()
    authors = write_lines(tmp_path / "authors" / "dev.jsonl", {"answerKey": "A", "id": "1", "question": question})
    pd.DataFrame([CSQA]).to_parquet(tmp_path / "hub.parquet")
    flat = records_of(write_lines(tmp_path / "csqa.jsonl", CSQA))
    assert records_of(authors) == records_of(tmp_path / "hub.parquet") == flat and flat[0]["group"] == "csqa-bat"
    (tmp_path / "hub.parquet").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ValueError, match=r"hub.parquet: not a parquet file .*git lfs pull"):
        records_of(tmp_path / "hub.parquet")
    (tmp_path / "authors.jsonl").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match=r"authors.jsonl: line 1: .*git lfs pull"):
        records_of(tmp_path / "authors.jsonl")


def test_a_question_that_holds_its_own_option_is_left_out(tmp_path):
    own = {**CSQA, "question": "Where in the sea is it dark?", "choices": {"text": ["sea", "shop"]}}
    found = userllm.convert([write_lines(tmp_path / "csqa.jsonl", own, CSQA)])
    assert found.records == records_of(write_lines(tmp_path / "csqa.jsonl", CSQA)) and found.left_out == {
        userllm.OWN_OPTION: 1
    }


@pytest.mark.parametrize(
    ("turns", "last"),
    [
        (["do bees see red"], [True]),
        (["do bees see red", "why"], [False, True]),
        (["do bees see red", "why", "ok"], [False, False]),
    ],
)
def test_a_conversation_gives_an_opening_and_a_second_turn(tmp_path, turns, last):
    records = records_of(write_lines(tmp_path / "conversations.jsonl", prism(turns, intent=INTENT)))
    assert [r["is_last_turn"] for r in records] == last and [r["turn"] for r in records] == [0, 1][: len(last)]
    assert records[0]["conversation_history"] == "" and {r["intent"] for r in records} == {INTENT}
    assert {(r["group"], r["user_id"]) for r in records} == {("prism-c7", "u3")}
    if len(records) > 1:
        assert records[1]["conversation_history"] == "User: do bees see red\nAssistant: reply 0a"


def test_an_intent_of_its_own_comes_first_and_turns_may_count_from_one(tmp_path):
    raw = prism(["hi", "why"], intent="Get to know what bees see.")
    for turn in raw["conversation_history"]:
        turn["turn"] += 1
    records = records_of(write_lines(tmp_path / "c.jsonl", raw))
    assert [r["intent"] for r in records] == ["Get to know what bees see."] * 2
    assert [r["turn"] for r in records] == [0, 1]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (prism(["hi", "why"]), userllm.NO_INTENT),
        (prism(["hi", "why"], intent="  "), userllm.NO_INTENT),
        (prism(["hi", "why"], intent="Why?"), userllm.SHORT_INTENT),
    ],
)
def test_a_conversation_without_a_good_intent_is_left_out_and_counted(tmp_path, raw, reason, capsys):
    found = userllm.convert([write_lines(tmp_path / "c.jsonl", raw, CSQA)])
    assert len(found.records) == 1 and found.left_out == {reason: 2}
    assert "python -m data.userllm intents" in userllm.NO_INTENT
    path = write_lines(tmp_path / "c.jsonl", raw)
    assert re.search(
        f"no row is left: 2 .{reason[:8]}", refusal(userllm, capsys, path, "--out", tmp_path / "x.parquet")
    )


def test_the_table_of_openings(tmp_path):
    with (tmp_path / "clusters.csv").open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["cluster_id", "top_texts"])
        writer.writerow(["1", "['Hello', 'do bees see red']"])
    assert userllm.convert([tmp_path / "clusters.csv"]).left_out == {userllm.NO_INTENT: 2}
    first, second = records_of(*with_intents(tmp_path, [tmp_path / "clusters.csv"]))
    assert (first["intent"], first["conversation_history"], first["is_last_turn"]) == (INTENT, "", False)
    assert first["group"] != second["group"]
