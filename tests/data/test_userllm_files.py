"""UserLLM task files: three sources, made-up assistant turns, openings and second turns of PRISM.

Promise under test: every row is one that the task can play, or is counted with the reason; no person's message is ever
the intent.
"""

from collections import Counter

import pandas as pd
import pytest

from data import userllm
from soul.tasks.userllm import UserLLM
from soul.tasks.userllm_turn import UserLLMRow, choices_mentioned
from tests.data.source_files import needs, write_lines
from tests.published import prism_talks, written_intent
from tests.soul.samples import DATA

FOLDER = DATA / "userllm"
FILES = sorted(FOLDER.glob("*.jsonl"))
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


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The real questions, PRISM's openings as conversations, and an intent for each."""
    folder, talks = tmp_path_factory.mktemp("userllm"), prism_talks(DATA)
    (folder / "intents.jsonl").write_text("".join(written_intent(talk["conversation_id"], INTENT) for talk in talks))
    return [*FILES, write_lines(folder / "conversations.jsonl", *talks), folder / "intents.jsonl"]


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
def test_every_source_gives_rows_that_the_task_can_play(files):
    task, records = UserLLM(), records_of(*files)
    rows = [UserLLMRow.model_validate(record) for record in records]
    assert [row.index for row in rows] == list(range(len(rows)))
    assert set(Counter(row.source for row in rows)) == {"commonsense_qa", "natural_questions", "prism"}
    for row, record in zip(rows, records, strict=True):
        task.check(row)
        assert len(task.prompt(row)) == 1
        assert (row.conversation == "") == (row.source == "prism")  # nobody has answered their second turns
        if row.source == "commonsense_qa":
            assert choices_mentioned(row.choices, row.question)[0] == 0
            assert choices_mentioned(row.choices, row.conversation)[0] == choices_mentioned(row.choices, "")[1]
        if row.source == "prism":
            assert row.intent == INTENT and not row.is_last_turn
        assert "answer" not in record and "answerKey" not in record


@needs_records
def test_a_sample_of_each_source_is_seeded(files):
    one = userllm.convert(files, per_source=40)
    assert one == userllm.convert(files[::-1], per_source=40) != userllm.convert(files, per_source=40, seed=1)
    assert set(Counter(r["source"] for r in one.records).values()) == {40}
    assert [r["index"] for r in one.records] == list(range(120))
    whole = userllm.convert(files)
    assert one.left_out.total() == len(whole.records) - 120 + whole.left_out.total()


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


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (prism(["hi", "why"]), userllm.NO_INTENT),
        (prism(["hi", "why"], intent="  "), userllm.NO_INTENT),
        (prism(["hi", "why"], intent="Why?"), userllm.SHORT_INTENT),
    ],
)
def test_a_conversation_without_a_good_intent_is_left_out_and_counted(tmp_path, raw, reason):
    found = userllm.convert([write_lines(tmp_path / "c.jsonl", raw, CSQA)])
    assert len(found.records) == 1 and found.left_out == {reason: 2}
