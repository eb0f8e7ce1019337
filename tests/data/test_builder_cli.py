"""What all builders share: the result they return, and that a bad source is one line that names the file."""

import importlib
import json

import pytest

from data.reading import read_csv
from tests.mistakes.mistake import error_of


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
    with pytest.raises(ValueError, match=r"a\.csv: not a CSV file"):
        list(read_csv(path))


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
    [{}],
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
