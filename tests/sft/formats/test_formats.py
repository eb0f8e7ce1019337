"""Rows have the same tokens in whatever format, layout and place they come."""

import gc
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from sft.corpus import tokenize as tokenising
from sft.corpus.split import Corpus
from sft.encode.conversation import BadConversation
from sft.encode.layouts import turns_of
from sft.formats import reading
from tests.sft.corpus.corpora import opened, row
from tests.sft.formats.files import WRITERS


@pytest.fixture(params=["many units", "one unit"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files with many blocks and units, or with one."""
    if request.param == "many units":
        monkeypatch.setattr(tokenising, "UNIT_ROWS", 10)
        monkeypatch.setattr(reading, "BATCH_BYTES", 1500)
        monkeypatch.setattr(reading, "BATCH_ROWS", 10)


def rows(count: int = 70) -> list[dict[str, Any]]:
    """Conversations with what JSON escapes: quotes, line breaks, emojis, other alphabets."""
    odd = ['He said "no".\n\tThen', "naïve – 中文 🙂", "\\ud83d is no escape here", "]},{[", "\u2028\u0085"]
    found = [row(number, f"a source/{number % 3}", turns=2 + number % 4) for number in range(count)]
    for number, record in enumerate(found):
        record["messages"][0]["content"] += odd[number % len(odd)] * (1 + number % 40)
    return found


def stored(corpus: Corpus) -> list[tuple[Any, ...]]:
    """Every sequence with its mask, positions and source."""
    read = [corpus.dataset[number] for number in range(len(corpus.dataset))]
    keys = ("input_ids", "loss_mask", "position_ids")
    return [(*(each[key].tolist() for key in keys), corpus.names[each["source"]]) for each in read]


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[Any, ...]]:
    """The sequences of the rows as parquet."""
    return stored(opened(tmp_path / "first", train_files=[str(WRITERS["parquet"](tmp_path / "first", rows()))]))


@pytest.mark.parametrize("form", WRITERS)
def test_a_format_has_the_tokens_of_parquet(
    tmp_path: Path, blocks: None, expected: list[tuple[Any, ...]], form: str
) -> None:
    place = WRITERS[form](tmp_path / "a folder, with [blanks]", rows())
    assert stored(opened(tmp_path, train_files=[str(place)])) == expected
    assert stored(opened(tmp_path, train_files=f"'{place}':1.0")) == expected  # as a text in quotes, with a ratio


def sharegpt(record: dict[str, Any], number: int) -> dict[str, Any]:
    names = {"user": ("human", "user")[number % 2], "assistant": ("gpt", "assistant")[number % 2]}
    turns = [{"from": names[turn["role"]], "value": turn["content"]} for turn in record["messages"]]
    return {"data_source": record["data_source"], "id": str(number), "conversations": turns}


def prompted(record: dict[str, Any]) -> dict[str, Any]:
    return {"prompt": record["messages"][:-1], "completion": record["messages"][-1:], "data_source": "x"}


def alpaca(record: dict[str, Any], number: int) -> dict[str, Any]:
    question, _, rest = record["messages"][0]["content"].partition(" ")
    return {
        "instruction": question,
        "input": rest if number % 2 else "",
        "output": record["messages"][1]["content"],
        "text": "the whole prompt, which Alpaca has too",
    }


SAID = [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Arr, hello"}]
PIRATE = "You are a pirate."
WITH_SYSTEM = [{"role": "system", "content": PIRATE}, *SAID]
SHARED = [{"from": "human", "value": "Hi there"}, {"from": "gpt", "value": "Arr, hello"}]


@pytest.mark.parametrize("form", ["parquet", "JSON lines"])
@pytest.mark.parametrize("column", ["system", "system_prompt"])
@pytest.mark.parametrize(
    "row",
    [
        {"messages": SAID},
        {"messages": WITH_SYSTEM},
        {"extra_info": {"messages": SAID}},
        {"conversations": SHARED},
        {"prompt": "Hi there", "response": "Arr, hello"},
        {"prompt": SAID[:1], "completion": SAID[1:]},
        {"instruction": "Hi there", "output": "Arr, hello"},
    ],
    ids=lambda row: "-".join(row),
)
def test_a_system_column_is_the_system_message(tmp_path: Path, form: str, column: str, row: dict[str, Any]) -> None:
    expected = stored(
        opened(tmp_path, train_files=[str(WRITERS["JSON lines"](tmp_path / "a", [{"messages": WITH_SYSTEM}]))])
    )
    place = WRITERS[form](tmp_path / "b", [row | {column: PIRATE}])
    assert stored(opened(tmp_path, train_files=[str(place)])) == expected


@pytest.mark.parametrize("form", ["parquet", "JSON lines"])
def test_layouts(tmp_path: Path, form: str) -> None:
    def stored_as(folder: str, converted: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return stored(opened(tmp_path, train_files=[str(WRITERS[form](tmp_path / folder, converted))]))

    records = rows(20)
    shared = [sharegpt(record, number) for number, record in enumerate(records)]
    assert stored_as("sharegpt", shared) == stored_as("messages", records)

    answered = [record for record in records if record["messages"][-1]["role"] == "assistant"]
    responses = [
        {"data_source": "x", "prompt": record["messages"][:-1], "response": record["messages"][-1]["content"]}
        for record in answered
    ]
    completions = [prompted(record) for record in answered]
    assert stored_as("completion", completions) == stored_as("response", responses)

    pairs = [{"data_source": "unnamed", "messages": record["messages"][:2]} for record in records]
    questions = [alpaca(record, number) for number, record in enumerate(pairs)]
    for pair, asked in zip(pairs, questions, strict=True):
        question = "\n\n".join(filter(str.strip, [asked["instruction"], asked["input"]]))
        pair["messages"] = [{"role": "user", "content": question}, *pair["messages"][1:]]
    assert stored_as("alpaca", questions) == stored_as("pairs", pairs)


def test_what_layouts_may_have_besides(tmp_path: Path) -> None:
    """A system text, a history, and calls of tools in ShareGPT's words."""
    call = {"name": "look", "arguments": {"at": 1}}
    record = {
        "system": "Be brief.",
        "conversations": [
            {"from": "human", "value": "Look!"},
            {"from": "function_call", "value": json.dumps(call)},
            {"from": "observation", "value": "a cat"},
            {"from": "gpt", "value": "A cat."},
        ],
    }
    assert turns_of(record, "conversations", "x") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look!"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "content": "a cat"},
        {"role": "assistant", "content": "A cat."},
    ]
    asked = {"instruction": "c", "input": None, "output": "d", "system": "s", "history": [["a", "b"]]}
    assert [(turn["role"], turn["content"]) for turn in turns_of(asked, "alpaca", "x")] == [
        ("system", "s"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
    ]
    long = {"prompt": "a", "completion": [{"role": "user", "content": "b"}]}
    with pytest.raises(BadConversation, match="x, field completion: .*one message of the assistant"):
        turns_of(long, "prompt_completion", "x")


def test_memory_does_not_grow_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_BYTES", 1 << 15)

    def peak(count: int) -> int:
        file = WRITERS["JSON lines, zstd"](tmp_path / str(count), [row(number) for number in range(count)])
        gc.collect()  # what other tests have left would be collected, and logged, while we count
        tracemalloc.start()
        assert sum(1 for _ in reading.read_records(file, reading.columns_of(file))) > 5
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(2_000), peak(8_000)
    assert large < 1.1 * small


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": "a", "text": "b"}\n', "row 0: the line is not JSON (the key 'text' occurs twice)"),
        ("a.json", b'[{"text": {"x": 1, "x": 1}}]', "the key 'x' occurs twice"),
        ("a.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\n", "run `git lfs pull`"),
        ("a.jsonl", b"<!DOCTYPE html>\n", "It is a web page, not the data"),
        ("a.parquet", b"\n<html><head>", "It is a web page, not the data"),
        ("a.csv", b"text\na\n", "Write a table (.csv, .tsv, .xlsx) as JSON lines first"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(reading.BadShard, match=re.escape(said)):
        list(reading.read_records(tmp_path / name, ["text"]))
