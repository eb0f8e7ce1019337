"""`soul convert` writes any corpus as parquet shards that have the same tokens."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sft.convert import converted_rows, main
from sft.corpus.columns import UnsupportedColumn
from sft.encode.conversation import read_conversation
from sft.encode.train_roles import RoleRules
from tests.sft.corpus.corpora import opened, row
from tests.sft.formats.files import WRITERS
from tests.sft.formats.test_formats import alpaca, rows, sharegpt, stored

CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": 1}}}


def converted(files: list[Path], out: Path, *options: str) -> Path:
    assert main([*map(str, files), "--out", str(out), *options]) in (0, None)
    return out


@pytest.mark.parametrize("form", ["JSON lines, zstd", "JSON array", "save_to_disk", "parquet"])
def test_a_converted_corpus_has_the_same_tokens(tmp_path: Path, form: str) -> None:
    own = WRITERS[form](tmp_path / "own data", [sharegpt(record, number) for number, record in enumerate(rows())])
    out = converted([own], tmp_path / "out", "--rows", "30")
    assert [pq.read_metadata(file).num_rows for file in sorted(out.glob("train_shard_*.parquet"))] == [30, 30, 10]
    assert stored(opened(tmp_path, dir=out)) == stored(opened(tmp_path, train_files=[str(own)]))


def test_several_formats_become_one_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = WRITERS["JSON lines"](tmp_path / "a", [alpaca(record, 1) for record in rows(5)])
    tools = [{"messages": [row(0)["messages"][0], {"role": "assistant", "content": "", "tool_calls": [CALL]}]}]
    calls = WRITERS["JSON array"](tmp_path / "b", [*tools, row(1, "named")])
    (tmp_path / "c d.txt").write_text("A book.\n" * 10)
    out = converted([asked, calls, tmp_path / "c d.txt"], tmp_path / "out", "--train-role", "human", "--split", "val")
    tables = [pq.read_table(file).to_pylist() for file in sorted(out.glob("val_shard_*.parquet"))]
    assert [len(table) for table in tables] == [5, 1, 1, 1]  # one set of columns a shard
    assert tables[0][0].keys() == {"data_source", "train_role", "prompt", "response"}
    assert json.loads(tables[1][0]["messages"])[1]["tool_calls"] == [CALL]
    assert tables[2][0]["messages"] == row(1)["messages"]
    assert tables[3] == [{"data_source": "c d", "train_role": "human", "text": "A book.\n" * 10}]
    assert [table[0]["data_source"] for table in tables[:3]] == ["rows", "rows", "named"]
    assert "8 rows in 4 shards" in capsys.readouterr().out


def test_rows_of_several_shapes_by_turns_share_the_shards_of_their_shape(tmp_path: Path) -> None:
    """A shard for each change would be 2,500 files here."""
    calls = [*row(0)["messages"], {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    lines = [{"messages": calls if n % 2 else row(n)["messages"], "data_source": str(n)} for n in range(2500)]
    (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = converted([tmp_path / "mixed.jsonl"], tmp_path / "out", "--rows", "1100")
    tables = [pq.read_table(file).to_pylist() for file in sorted(out.iterdir())]
    assert sorted(len(table) for table in tables) == [150, 150, 1100, 1100]
    records = [record for table in tables for record in table]
    called = [record for record in records if isinstance(record["messages"], str)]
    plain = [record for record in records if isinstance(record["messages"], list)]
    assert [record["data_source"] for record in called] == [str(n) for n in range(1, 2500, 2)]
    assert [record["messages"] for record in plain] == [row(n)["messages"] for n in range(0, 2500, 2)]


def test_a_prompt_with_tool_calls_keeps_its_turns(tmp_path: Path) -> None:
    """As JSON in the column prompt it would be one message of the user."""
    asked = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    line = {"prompt": [*asked, {"role": "tool", "content": "3"}], "response": "three", "train_role": None}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    (record,) = pq.read_table(converted([tmp_path / "a.jsonl"], tmp_path / "out")).to_pylist()
    after = read_conversation(record, "messages", RoleRules(), "a", 0)
    before = read_conversation(line, "prompt_response", RoleRules(), "a", 0)
    assert (after.messages, after.trained) == (before.messages, before.trained) and len(after.messages) == 4


def test_a_distilled_corpus_still_says_which_rows_it_was_played_on(tmp_path: Path) -> None:
    """Without these columns, its overlap with a test would not be found."""
    origin = {"file": "hitom.parquet", "row": 7, "record": "a1b2", "near": 0.5, "train_role": "assistant"}
    own = WRITERS["JSON lines"](tmp_path / "own", [row(0) | origin | {"images": ["x"]}, row(1)])
    with pytest.raises(UnsupportedColumn, match="--ignore-column images"):
        list(converted_rows(own, None, None))
    out = converted([own], tmp_path / "out", "--ignore-column", "images")
    ours, other = (pq.read_table(shard).to_pylist()[0] for shard in sorted(out.iterdir()))
    assert {name: ours[name] for name in origin} == origin and "images" not in ours
    assert not {*origin} & {*other}
