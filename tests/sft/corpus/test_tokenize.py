"""The token store holds what the rows say, is made once, and survives whatever interrupts its making."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sft.corpus import tokenize as tokenising
from sft.corpus.columns import UnsupportedColumn
from sft.corpus.row_encoder import EmptyCorpus, RowEncoder
from sft.corpus.sources import BadSources
from sft.corpus.split import open_corpus
from sft.encode.messages import BadConversation
from sft.encode.rendering import TemplateFailure
from sft.encode.sequence import TooLong
from sft.encode.train_roles import UnknownSource
from sft.formats import reading
from sft.formats.names import BadShard
from tests.sft.corpus.corpora import opened, row, settings, texts, write
from tests.sft.encode.templates import encode, tokenizer_with
from tests.sft.formats.files import WRITERS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of ten rows, so that a small file has several."""
    monkeypatch.setattr(tokenising, "UNIT_ROWS", 10)
    monkeypatch.setattr(reading, "BATCH_ROWS", 10)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are tokenised, as they are."""
    found: list[str] = []
    real = tokenising._make

    def counted(file: Path, folder: Path, encoder: RowEncoder) -> None:
        real(file, folder, encoder)
        found.append(file.name)

    monkeypatch.setattr(tokenising, "_make", counted)
    return found


@pytest.mark.parametrize("group", [1, 7, 10, 33, 100])
def test_the_store_holds_the_rows_in_order(tmp_path: Path, small_units: None, group: int) -> None:
    rows = [row(number, "ab"[number % 3 == 0], turns=2 + number % 4) for number in range(100)]
    write(tmp_path / "train_shard_0.parquet", rows[:60], group)
    write(tmp_path / "train_shard_1.parquet", rows[60:], group)
    corpus = opened(tmp_path)
    assert len(corpus.dataset) == 100
    for number, record in enumerate(rows):
        found = corpus.dataset[number]
        (expected,) = encode(tokenizer_with("plain"), record["messages"])
        assert found["input_ids"].tolist() == expected.ids
        assert [place for place, on in enumerate(found["loss_mask"].tolist()) if on] == [
            place for span in expected.spans for place in range(*span)
        ]
        assert corpus.names[found["source"]] == record["data_source"]
    assert corpus.sources["a"].rows == 66 and corpus.sources["b"].rows == 34
    assert corpus.sources["a"].tokens + corpus.sources["b"].tokens == sum(
        len(corpus.dataset[number]["input_ids"]) for number in range(100)
    )


def test_a_second_start_tokenises_nothing(tmp_path: Path, small_units: None, done: list[str]) -> None:
    for shard in range(2):
        write(tmp_path / f"train_shard_{shard}.parquet", [row(number) for number in range(25)])
    first = texts(opened(tmp_path))
    assert len(done) == 2
    assert texts(opened(tmp_path)) == first
    assert len(done) == 2
    write(tmp_path / "train_shard_1.parquet", [row(number + 100) for number in range(25)])
    assert texts(opened(tmp_path)) != first
    assert done[2:] == ["train_shard_1.parquet"]
    (damaged,) = (tmp_path / "cache" / "tokens").glob("train_shard_0*/shard.json")
    damaged.write_text(damaged.read_text()[:-9])
    opened(tmp_path)
    assert done[3:] == ["train_shard_0.parquet"]
    opened(tmp_path, max_prompt_length=2000)  # other limits, other sequences
    assert len(done) == 6


def test_after_an_error_the_files_that_were_done_stay_done(tmp_path: Path, small_units: None, done: list[str]) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(0)])
    rows = [row(number) for number in range(40)]
    rows[25]["messages"][1]["content"] = "  "
    file = write(tmp_path / "train_shard_1.parquet", rows)
    for workers in (0, 2):
        with pytest.raises(BadConversation, match=f"{file}, row 25, turn 1 .assistant.: the turn is empty"):
            opened(tmp_path, tokenizer_workers=workers)
    assert done == ["train_shard_0.parquet"]
    corpus = opened(tmp_path, bad_rows="drop")
    assert done == ["train_shard_0.parquet", "train_shard_1.parquet"]
    assert corpus.sources["mine"].left_out == {"bad_rows": 1}
    assert (corpus.sources["mine"].rows, corpus.sources["mine"].sequences) == (41, 40)
    with pytest.raises(BadConversation, match="1 bad rows, such as: .*row 25"):
        opened(tmp_path)  # the tokens are there, but this run does not want what they lack


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_while_it_tokenises(tmp_path: Path, small_units: None, done: list[str], workers: int) -> None:
    for shard in range(2):
        write(tmp_path / f"train_shard_{shard}.parquet", [row(number + 50 * shard) for number in range(50)])
    program = f"""
import os, signal, sys
from pathlib import Path
from sft.corpus import tokenize as tokenising
from sft.formats import reading
from sft.corpus.store import SequenceWriter
from tests.sft.corpus.corpora import opened
tokenising.UNIT_ROWS = reading.BATCH_ROWS = 10
real, owner = SequenceWriter.add, os.getpid()
def add(self, sequences, source, row):
    real(self, sequences, source, row)
    if (row, sequences[0].ids) == (35, wanted):
        os.kill(owner, signal.SIGKILL)
SequenceWriter.add = add
wanted = {encode(tokenizer_with("plain"), row(85)["messages"])[0].ids}
opened(Path({str(tmp_path)!r}), tokenizer_workers={workers})
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, timeout=120)
    assert ended.returncode == -9, ended.stderr.decode()[-2000:]
    deadline = time.monotonic() + 20
    while any(str(tmp_path) in word for process in psutil.process_iter() for word in cmdline(process)):
        assert time.monotonic() < deadline, "a process outlives the one that was killed"
        time.sleep(0.1)
    found = texts(opened(tmp_path))
    assert done == ["train_shard_1.parquet"]
    for folder in (tmp_path / "cache" / "tokens").glob("train_shard_?-*[!k]"):
        assert {path.suffix for path in folder.iterdir()} == {".arrow", ".json"}  # no leftovers
    shutil.rmtree(tmp_path / "cache")
    assert texts(opened(tmp_path)) == found


def test_a_process_of_the_tokenising_that_dies_ends_it(tmp_path: Path, small_units: None) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(number) for number in range(40)])
    program = f"""
import os, signal
from pathlib import Path
from sft.corpus import tokenize as tokenising
from sft.formats import reading
from sft.corpus.store import SequenceWriter
from tests.sft.corpus.corpora import opened
tokenising.UNIT_ROWS = reading.BATCH_ROWS = 10
SequenceWriter.table = lambda self: os.kill(os.getpid(), signal.SIGKILL)
opened(Path({str(tmp_path)!r}), tokenizer_workers=2)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, timeout=120)
    assert "TokenisingFailed: a process that tokenises the corpus was killed" in ended.stderr.decode()


def test_several_processes_make_one_store(tmp_path: Path, small_units: None) -> None:
    """Each of them takes files that the others do not have; the third one dies with one."""
    for shard in range(6):
        write(tmp_path / f"train_shard_{shard}.parquet", [row(number + shard * 50) for number in range(50)])
    expected = texts(opened(tmp_path, cache_dir=tmp_path / "alone"))
    program = f"""
import os, sys, time
from pathlib import Path
from sft.corpus import tokenize as tokenising
from sft.formats import reading
from tests.sft.corpus.corpora import opened, texts
folder = Path({str(tmp_path)!r})
tokenising.UNIT_ROWS = reading.BATCH_ROWS = 10
real, files = tokenising._make, []
def slow(file, *rest):
    if sys.argv[1] == "2" and files:
        os._exit(9)  # with a file locked that the others have to do
    time.sleep(0.5)
    real(file, *rest)
    files.append(file.name)
tokenising._make = slow
(folder / f"ready_{{sys.argv[1]}}").touch()
while len(list(folder.glob("ready_*"))) < 3:
    time.sleep(0.01)
found = texts(opened(folder))
print(hash(tuple(found)), *files)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(number)], env=environment, stdout=subprocess.PIPE, text=True
        )
        for number in range(3)
    ]
    ends = [start.communicate(timeout=240)[0].split() for start in starts]
    assert [start.returncode for start in starts] == [0, 0, 9]
    assert ends[0][0] == ends[1][0] and texts(opened(tmp_path)) == expected
    assert all(end[1:] for end in ends[:2]) and not set(ends[0]) & set(ends[1][1:])  # both take part, nothing twice


@given(st.integers(1, 4), st.sampled_from(["messages", "text"]))
@hypothesis.settings(max_examples=8, deadline=None)
def test_the_number_of_processes_changes_nothing(workers: int, layout: str) -> None:
    before, tokenising.UNIT_ROWS, reading.BATCH_ROWS = (tokenising.UNIT_ROWS, reading.BATCH_ROWS), 10, 10
    try:
        with tempfile.TemporaryDirectory() as name:
            rows = [row(n) if layout == "messages" else {"text": "hello " * (n % 40)} for n in range(75)]
            write(Path(name) / "train_shard_0.parquet", rows, group=8)
            one, several = (
                opened(Path(name), cache_dir=Path(name) / str(count), tokenizer_workers=count, max_prompt_length=60)
                for count in (0, workers)
            )
            assert one.files == several.files and texts(one) == texts(several)
    finally:
        tokenising.UNIT_ROWS, reading.BATCH_ROWS = before


@pytest.mark.parametrize("workers", [0, 2])
def test_files_and_units_without_a_sequence_are_nothing(tmp_path: Path, small_units: None, workers: int) -> None:
    bad = [
        row(number) | {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": ""}]}
        for number in range(30)
    ]
    write(tmp_path / "train_shard_0.parquet", bad)
    write(tmp_path / "train_shard_1.parquet", [*bad, row(0), row(1)], group=10)
    pq.write_table(pq.read_table(tmp_path / "train_shard_0.parquet").slice(0, 0), tmp_path / "train_shard_2.parquet")
    corpus = opened(tmp_path, bad_rows="drop", tokenizer_workers=workers)
    assert [file.sequences for file in corpus.files] == [0, 2, 0] and len(texts(corpus)) == 2
    assert corpus.dataset.sequences_by_source()[0].tolist() == [0, 1] and corpus.order.epoch_rows(0).tolist() == [0, 1]
    (tmp_path / "train_shard_1.parquet").unlink()
    with pytest.raises(EmptyCorpus, match="no sequence is left to train"):
        opened(tmp_path, bad_rows="drop", tokenizer_workers=workers)


def test_overlong(tmp_path: Path) -> None:
    rows = [row(0), row(6, turns=8), row(1)]
    write(tmp_path / "train_shard_0.parquet", rows)
    whole = opened(tmp_path)
    length = whole.dataset.lengths.tolist()
    limit: dict[str, Any] = {"max_prompt_length": length[1] - 11, "max_response_length": 10}
    dropped = opened(tmp_path, overlong="drop", **limit)
    assert texts(dropped) == [texts(whole)[0], texts(whole)[2]]
    assert dropped.sources["mine"].left_out == {"overlong_sequences": 1}
    assert "row 1" in dropped.examples["overlong_sequences"]
    cut = opened(tmp_path, overlong="truncate", **limit)
    assert cut.sources["mine"].left_out == {"truncated_sequences": 1}
    (expected,) = encode(tokenizer_with("plain"), rows[1]["messages"][:6])
    assert cut.dataset[1]["input_ids"].tolist() == expected.ids
    with pytest.raises(TooLong, match=f"row 1, a sequence of {length[1]} tokens"):
        opened(tmp_path, overlong="error", **limit)


def test_one_turn_that_is_too_long_is_cut_at_the_limit(tmp_path: Path) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(6)])
    whole = opened(tmp_path).dataset[0]
    limit = len(whole["input_ids"]) - 3
    cut = opened(tmp_path, overlong="truncate", max_prompt_length=limit - 5, max_response_length=5).dataset[0]
    assert cut["input_ids"].tolist() == whole["input_ids"][:limit].tolist()
    assert cut["loss_mask"].tolist() == whole["loss_mask"][:limit].tolist()
    start = whole["loss_mask"].tolist().index(1)
    with pytest.raises(EmptyCorpus, match="overlong_sequences"):  # nothing but prompt would be left
        opened(tmp_path, overlong="truncate", max_prompt_length=start - 1, max_response_length=1)


def test_a_context_that_the_model_does_not_have(tmp_path: Path) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(0)])
    with pytest.raises(TooLong, match="24,576 tokens, but the model has a context of 8,192"):
        open_corpus(settings(tmp_path), tokenizer_with("plain"), "train", context=8192)


def test_rows_without_a_trained_turn(tmp_path: Path) -> None:
    rows = [row(0), row(1, turns=1), row(2, "chat"), row(3, "chat", turns=1)]
    write(tmp_path / "train_shard_0.parquet", rows)
    corpus = opened(tmp_path)
    assert {name: counts.left_out["rows_without_trained_turn"] for name, counts in corpus.sources.items()} == {
        "mine": 1,
        "chat": 1,
    }
    write(tmp_path / "train_shard_0.parquet", [row(0), row(1, "chat", turns=1), row(2, "chat", turns=1)])
    with pytest.raises(BadConversation, match="'chat': none of its 2 rows.*a column train_role"):
        opened(tmp_path)


def test_the_role_of_a_source_over_several_shards(tmp_path: Path) -> None:
    empty = row(0, "chat")
    empty["messages"][1]["content"] = ""
    write(tmp_path / "train_shard_0.parquet", [empty])  # nothing of this shard tells the role
    write(tmp_path / "train_shard_1.parquet", [row(1, "chat"), row(2)])
    write(tmp_path / "train_shard_2.parquet", [row(3, "chat") | {"train_role": "assistant"}])
    write(tmp_path / "train_shard_3.parquet", [row(4) | {"train_role": "human"}])
    corpus = opened(tmp_path, bad_rows="drop")
    assert {name: dict(counts.roles) for name, counts in corpus.sources.items()} == {
        "chat": {"assistant (known source)": 1, "assistant (train_role column)": 1},
        "mine": {"assistant (data.default_train_role)": 1, "human (train_role column)": 1},
    }


def test_a_source_without_a_rule_is_found_before_anything_is_tokenised(tmp_path: Path, done: list[str]) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(0, "coser"), row(1, "wildchat_v1")])
    file = write(tmp_path / "train_shard_1.parquet", [row(2, "coser"), row(3, "pears")])
    with pytest.raises(UnknownSource, match=f"{file}: source 'pears': no rule.*column train_role"):
        opened(tmp_path, default_train_role=None)
    assert not done
    corpus = opened(tmp_path, default_train_role="human")
    assert {name: dict(counts.roles) for name, counts in corpus.sources.items()} == {
        "coser": {"human (known source)": 2},
        "wildchat_v1": {"human (known source)": 1},
        "pears": {"human (data.default_train_role)": 1},
    }
    rows = [row(4, "pears") | {"train_role": "human"}, row(5, "coser") | {"train_role": None}]
    write(tmp_path / "train_shard_1.parquet", rows)
    assert opened(tmp_path, default_train_role=None).sources["pears"].rows == 1


def test_a_column_that_means_something_else_is_refused_by_name(tmp_path: Path) -> None:
    file = write(tmp_path / "train_shard_0.parquet", [row(0) | {"images": ["a.png"], "score": 1.0, "label": "x"}])
    with pytest.raises(UnsupportedColumn, match=rf"{file}: column 'images'.*data.ignore_columns=\[images\]"):
        opened(tmp_path)
    assert len(opened(tmp_path, ignore_columns=["images"]).dataset) == 1
    write(tmp_path / "train_shard_0.parquet", [{"prompt": "x", "chosen": "a", "rejected": "b"}])
    with pytest.raises(UnsupportedColumn, match="column 'chosen': pairs"):
        opened(tmp_path)


@pytest.mark.parametrize("form", ["JSON lines", "JSON array"])
def test_a_column_of_a_later_json_row_is_refused_by_row(tmp_path: Path, form: str) -> None:
    """The columns of a JSON file are those of its first rows; this row would be trained without its weight."""
    file = WRITERS[form](tmp_path, [row(number) for number in range(300)] + [row(300) | {"weight": 0.1}])
    with pytest.raises(UnsupportedColumn, match=rf"{file}, row 300: column 'weight'.*ignore_columns=\[weight\]"):
        opened(tmp_path, train_files=[str(file)])
    assert len(opened(tmp_path, train_files=[str(file)], ignore_columns=["weight"]).dataset) == 301


def test_tools_of_the_rows_reach_the_template_or_are_refused(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    write(tmp_path / "train_shard_0.parquet", [row(0) | {"tools": json.dumps([tool])}, row(1) | {"tools": None}])
    with pytest.raises(TemplateFailure, match="row 0, field tools: the chat template does not render tools"):
        opened(tmp_path)
    first, second = texts(opened(tmp_path, template="with_tools"))
    assert "look" in first and "look" not in second
    assert "look" not in texts(opened(tmp_path, ignore_columns=["tools"]))[0]
    nested = row(0) | {"tools": [tool], "extra_info": {"tools": [tool], "id": 3}}  # JSON has no columns to leave unread
    (tmp_path / "a.jsonl").write_text(json.dumps(nested))
    ignored = ["tools", "extra_info.tools"]
    assert "look" not in texts(opened(tmp_path, train_files=[f"{tmp_path}/a.jsonl"], ignore_columns=ignored))[0]


def test_a_template_failure_names_file_row_and_turn(tmp_path: Path) -> None:
    rows = [row(0), row(1)]
    rows[1]["messages"].insert(0, rows[1]["messages"][0])
    file = write(tmp_path / "train_shard_0.parquet", rows)
    with pytest.raises(TemplateFailure, match=f"{file}, row 1, turn 1 .user.*must alternate"):
        opened(tmp_path, template="strict")


def test_no_shards_and_bad_shards(tmp_path: Path) -> None:
    with pytest.raises(BadSources, match="TRAIN_FILES is not set.*train_shard_"):
        opened(tmp_path)
    file = tmp_path / "train_shard_0.parquet"
    file.write_bytes(b"PAR1 not a parquet file")
    with pytest.raises(BadShard, match=f"{file}: not a readable parquet file"):
        opened(tmp_path)
    write(file, [{"prompt": "a", "answer": "b"}])
    with pytest.raises(BadShard, match="the column 'response' is missing .it has: prompt, answer"):
        opened(tmp_path)
    write(file, [row(0)])
    assert open_corpus(settings(tmp_path), tokenizer_with("plain"), "val") is None
    write(file, [{"content": "a"}])
    with pytest.raises(BadShard, match="the column 'messages' is missing"):
        opened(tmp_path)


def test_mistakes_in_the_other_split_come_before_any_tokenising(tmp_path: Path, done: list[str]) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(0)])
    write(tmp_path / "val_shard_0.parquet", [{"content": "a"}])
    with pytest.raises(BadShard, match="val_shard_0.parquet: the column 'messages' is missing"):
        opened(tmp_path)
    with pytest.raises(BadSources, match="VAL_FILES: 'x.parquet:no': 'no' is not a ratio"):
        opened(tmp_path, val_files="x.parquet:no")
    assert not done


def test_a_shard_that_is_damaged_inside(tmp_path: Path) -> None:
    file = write(tmp_path / "train_shard_0.parquet", [row(number) for number in range(2000)])
    content = bytearray(file.read_bytes())
    content[100:2000] = bytes(1900)
    file.write_bytes(content)
    with pytest.raises(BadShard, match=f"{file}: not a readable parquet file"):
        opened(tmp_path)
