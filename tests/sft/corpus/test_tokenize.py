"""The token store holds what the rows say, is made once, and survives whatever interrupts its making."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from sft.corpus import tokenize as tokenising
from sft.corpus.row_encoder import EmptyCorpus, RowEncoder
from sft.corpus.store import SequenceWriter
from sft.corpus.tokenize import TokenisingFailed
from sft.encode.layouts import UnsupportedColumn
from sft.encode.messages import BadConversation
from sft.encode.sequence import EncodedSequence, TooLong
from sft.encode.train_roles import UnknownSource
from sft.formats import reading
from tests.sft.corpus.corpora import opened, row, texts, write
from tests.sft.encode.templates import encode, tokenizer_with
from tests.sft.formats.files import WRITERS


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units of ten rows, so that a small file has several."""
    monkeypatch.setattr(tokenising, "UNIT_ROWS", 10)
    monkeypatch.setattr(reading, "BATCH_ROWS", 10)


@pytest.fixture(params=[1, 2])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many cores that may tokenise."""
    monkeypatch.setattr(tokenising, "cores", lambda: request.param)
    count: int = request.param
    return count


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


@pytest.mark.usefixtures("small_units", "processes")
def test_after_an_error_the_files_that_were_done_stay_done(tmp_path: Path, done: list[str]) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(0)])
    rows = [row(number) for number in range(40)]
    rows[25]["messages"][1]["content"] = "  "
    file = write(tmp_path / "train_shard_1.parquet", rows)
    with pytest.raises(BadConversation, match=f"{file}, row 25, turn 1 .assistant.: the turn is empty"):
        opened(tmp_path)
    assert done == ["train_shard_0.parquet"]
    corpus = opened(tmp_path, bad_rows="drop")
    assert done == ["train_shard_0.parquet", "train_shard_1.parquet"]
    assert corpus.sources["mine"].left_out == {"bad_rows": 1}
    assert (corpus.sources["mine"].rows, corpus.sources["mine"].sequences) == (41, 40)
    with pytest.raises(BadConversation, match="1 bad rows, such as: .*row 25"):
        opened(tmp_path)  # the tokens are there, but this run does not want what they lack


def forked(work: Callable[[], object]) -> int:
    """Start a process that does this, and return its id; it has imported everything already."""
    if child := os.fork():
        return child
    try:
        work()
    finally:
        os._exit(1)


@pytest.mark.usefixtures("small_units")
def test_killed_while_it_tokenises(tmp_path: Path, done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for shard in range(2):
        write(tmp_path / f"train_shard_{shard}.parquet", [row(number + 50 * shard) for number in range(50)])
    (fatal,) = encode(tokenizer_with("plain"), row(85)["messages"])
    (tmp_path / "processes").mkdir()
    real, owners = SequenceWriter.add, list[int]()

    def add(self: SequenceWriter, sequences: Sequence[EncodedSequence], source: str, number: int) -> None:
        (tmp_path / "processes" / str(os.getpid())).touch()
        real(self, sequences, source, number)
        if sequences[0].ids == fatal.ids:
            os.kill(owners[0], signal.SIGKILL)

    def killed() -> None:
        owners.append(os.getpid())
        opened(tmp_path)

    with monkeypatch.context() as changed:
        changed.setattr(SequenceWriter, "add", add)
        changed.setattr(tokenising, "cores", lambda: 2)
        _, status = os.waitpid(forked(killed), 0)
    assert os.WIFSIGNALED(status)
    helpers = [int(file.name) for file in (tmp_path / "processes").iterdir()]
    deadline = time.monotonic() + 20
    while any(map(psutil.pid_exists, helpers)):
        assert time.monotonic() < deadline, "a process outlives the one that was killed"
        time.sleep(0.1)
    found = texts(opened(tmp_path))
    assert done == ["train_shard_1.parquet"] and len(helpers) > 1
    shutil.rmtree(tmp_path / "cache")
    assert texts(opened(tmp_path)) == found


@pytest.mark.usefixtures("small_units")
def test_a_process_of_the_tokenising_that_dies_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(number) for number in range(40)])
    monkeypatch.setattr(tokenising, "cores", lambda: 2)
    monkeypatch.setattr(SequenceWriter, "table", lambda self: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(TokenisingFailed, match="a process that tokenises the corpus was killed"):
        opened(tmp_path)


def test_several_processes_make_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes files that the others do not have; the third one dies with one."""
    for shard in range(6):
        write(tmp_path / f"train_shard_{shard}.parquet", [row(number + shard * 50) for number in range(50)])
    expected = texts(opened(tmp_path, cache_dir=tmp_path / "alone"))
    real = tokenising._make

    def process(name: str) -> None:
        files: list[str] = []

        def slow(file: Path, folder: Path, encoder: RowEncoder) -> None:
            if name == "dies" and files:
                os._exit(9)  # with a file locked that the others have to do
            time.sleep(0.2)
            real(file, folder, encoder)
            files.append(file.name)

        tokenising._make = slow
        (tmp_path / f"ready_{name}").touch()
        while len(list(tmp_path.glob("ready_*"))) < 3:
            time.sleep(0.01)
        found = texts(opened(tmp_path))
        (tmp_path / f"{name}.json").write_text(json.dumps([found == expected, files]))
        os._exit(0)

    monkeypatch.setattr(tokenising, "_make", real)  # restored afterwards
    children = [forked(partial(process, name)) for name in ("one", "two", "dies")]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 9]
    same, files = zip(*(json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two")), strict=True)
    assert same == (True, True) and texts(opened(tmp_path)) == expected
    assert all(files) and not set(files[0]) & set(files[1])  # both take part, nothing twice


@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("layout", ["messages", "text"])
def test_the_number_of_processes_changes_nothing(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(n) if layout == "messages" else {"text": "hello " * (n % 40)} for n in range(75)]
    write(tmp_path / "train_shard_0.parquet", rows, group=8)
    one = opened(tmp_path, cache_dir=tmp_path / "one", max_prompt_length=60)
    monkeypatch.setattr(tokenising, "cores", lambda: 3)
    several = opened(tmp_path, cache_dir=tmp_path / "several", max_prompt_length=60)
    assert one.files == several.files and texts(one) == texts(several)


@pytest.mark.usefixtures("small_units", "processes")
def test_files_and_units_without_a_sequence_are_nothing(tmp_path: Path) -> None:
    bad = [
        row(number) | {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": ""}]}
        for number in range(30)
    ]
    write(tmp_path / "train_shard_0.parquet", bad)
    write(tmp_path / "train_shard_1.parquet", [*bad, row(0), row(1)], group=10)
    pq.write_table(pq.read_table(tmp_path / "train_shard_0.parquet").slice(0, 0), tmp_path / "train_shard_2.parquet")
    corpus = opened(tmp_path, bad_rows="drop")
    assert [file.sequences for file in corpus.files] == [0, 2, 0] and len(texts(corpus)) == 2
    assert corpus.dataset.sequences_by_source()[0].tolist() == [0, 1] and corpus.order.epoch_rows(0).tolist() == [0, 1]
    (tmp_path / "train_shard_1.parquet").unlink()
    with pytest.raises(EmptyCorpus, match="no sequence is left to train"):
        opened(tmp_path, bad_rows="drop")


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


def test_a_source_without_a_rule_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "train_shard_0.parquet", [row(0, "coser"), row(1, "wildchat_v1")])
    file = write(tmp_path / "train_shard_1.parquet", [row(2, "coser"), row(3, "pears")])
    with pytest.raises(UnknownSource, match=f"{file}: source 'pears': no rule.*column train_role"):
        opened(tmp_path, default_train_role=None)
    corpus = opened(tmp_path, default_train_role="human")
    assert {name: dict(counts.roles) for name, counts in corpus.sources.items()} == {
        "coser": {"human (known source)": 2},
        "wildchat_v1": {"human (known source)": 1},
        "pears": {"human (data.default_train_role)": 1},
    }
    rows = [row(4, "pears") | {"train_role": "human"}, row(5, "coser") | {"train_role": None}]
    write(tmp_path / "train_shard_1.parquet", rows)
    assert opened(tmp_path, default_train_role=None).sources["pears"].rows == 1


@pytest.mark.parametrize("form", ["JSON lines", "JSON array"])
def test_a_column_of_a_later_json_row_is_refused_by_row(tmp_path: Path, form: str) -> None:
    """The columns of a JSON file are those of its first rows; this row would be trained without its weight."""
    file = WRITERS[form](tmp_path, [row(number) for number in range(300)] + [row(300) | {"weight": 0.1}])
    with pytest.raises(UnsupportedColumn, match=f"{file}, row 300: column 'weight'.*write the file anew without"):
        opened(tmp_path, train_files=[str(file)])
