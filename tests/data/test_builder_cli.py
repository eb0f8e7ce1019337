"""What all builders share: the result they return, and that a bad source is one line that names the file."""

import importlib
import json
from collections import Counter
from pathlib import Path

import pytest

from data import social_r1
from data.builder_cli import Built, BuiltFile, counted
from data.reading import read_csv
from soul.rows.data_card import read_inside
from tests.mistakes.mistake import error_of


def test_a_result_counts_its_rows_and_prints_every_reason():
    files = (BuiltFile(Path("a"), 3, "stories=2"), BuiltFile(Path("b"), 1))
    built = Built(files, {"blank": 2000, "none": 0}, ("Note.",))
    assert built.rows == 4
    assert built.lines() == ["a: rows=3 stories=2", "b: rows=1", "left out: 2,000 (blank)", "Note."]
    assert counted("removed", Counter({"lines": 2, "words": 0})) == ("removed: 2 (lines)",)


def test_a_row_of_a_table_is_named_and_keeps_the_ends_of_its_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'x,y\n1,"two\r\nlines"\n3,4\n')
    assert list(read_csv(path)) == [
        (f"{path}: row 1", {"x": "1", "y": "two\r\nlines"}),
        (f"{path}: row 2", {"x": "3", "y": "4"}),
    ]


@pytest.mark.parametrize("text", [b"x\n\xff\xfe\n", b"x\n" + b"1" * 200_000 + b"\n"])
def test_a_table_that_cannot_be_read_is_named(text, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"a\.csv: not a (text file in UTF-8|CSV file)"):
        list(read_csv(path))


def test_a_builders_own_command_line_marks_rows_that_stand_in_for_others(tmp_path, capsys):
    record = {"STORY": "Ann left.", "QUESTION": "Who left?", "OPTION-A": "Ann", "OPTION-B": "Ben", "答案\nANSWER": "A"}
    marks = {}
    for name in ("ToMBench/data/Belief.jsonl", "tombench_hard.jsonl"):
        source, out = tmp_path / name, tmp_path / "social_r1_val.parquet"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(json.dumps(record) + "\n")
        social_r1.main(["convert", str(source), "--out", str(out)])
        card = read_inside(out)
        marks[name] = card and (card.task, card.rows, card.stands_in, [one.name for one in card.sources])
        assert ("stands in for" in capsys.readouterr().out) is (card is not None)
    ours = ("social_r1", 1, "ToMBench stands in for ToMBench-Hard", ["Belief.jsonl"])
    assert list(marks.values()) == [ours, None]


# Builder -> the ending of its files, and what stands before and after them on its command line.
BUILDERS = {
    "hitom": ("json", [], []),
    "alignx": ("json", [], []),
    "lifechoices": ("json", [], []),
    "coser": ("json", [], []),
    "humanual": ("json", [], ["--set", "opinion"]),
    "sim_arena": ("json", ["math"], []),
    "twinvoice": ("jsonl", [], []),
    "social_r1": ("jsonl", [], []),
    "mirrorbench": ("jsonl", [], []),
}
SHAPES = [
    3,
    None,
    "text",
    [],
    {},
    [3],
    [None],
    [[3]],
    [{}],
    {"a": 3},
    {"a": {"b": 3}},
    {"a": {"b": [3]}},
    {"data": [3]},
    {"plots": [3]},  # no check of the CoSER builder foresees these two: the command line names the file
    {"plots": [{"conversation": 3}]},
]


@pytest.mark.parametrize("text", [*map(json.dumps, SHAPES), "[{", "", b"\xff\xfe\x00"])
@pytest.mark.parametrize("name", BUILDERS)
def test_a_source_of_another_shape_is_one_line_that_names_it(name, text, tmp_path, capsys):
    ending, first, rest = BUILDERS[name]
    source = tmp_path / f"source.{ending}"
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    out = tmp_path / "out.parquet"
    module = importlib.import_module(f"data.{name}")
    message = error_of(module.main, ["convert", *first, str(source), *rest, "--out", str(out)], capsys)
    assert message.startswith(f"\nBadSource: data.{name}: ") and not out.exists()
    assert "source." in message or "no rows to write" in message
