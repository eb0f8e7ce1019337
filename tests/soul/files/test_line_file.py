"""Files of lines: both forms hold the same lines, and a torn one is read up to the tear."""

import gzip
import logging

import pytest

from soul.files.line_file import DamagedFile, either_form, line_from, lines_of, packed_form, read_lines, write_lines

LINES = ['{"a": 1}', '{"text": "größer"}', "x" * 3_000_000, ""]
STORED = [f"{line}\n".encode() for line in LINES]


@pytest.fixture(params=["plain", "packed"])
def written(request, tmp_path):
    path = tmp_path / "traces" / "step_000001.jsonl"
    target = write_lines(path, LINES, 1.0 if request.param == "packed" else None)
    assert target == (packed_form(path) if request.param == "packed" else path) == either_form(path)
    return target


def test_both_forms_hold_the_same_lines_and_each_can_be_read_by_its_place(written):
    lines = list(read_lines(written))
    assert [line.text for line in lines] == STORED
    assert [line.start for line in lines] == [0, *(line.end for line in lines[:-1])]
    assert lines[-1].end == written.stat().st_size
    content = written.read_bytes()
    assert [line_from(content[line.start : line.end], written) for line in lines] == STORED
    with written.open("rb") as file:
        assert list(lines_of(file, lines[1].end)) == lines[2:]
    if written.suffix == ".gz":
        assert gzip.decompress(content) == b"".join(STORED)  # as any other program reads it


def test_a_file_that_is_cut_off_is_read_up_to_the_tear(written, caplog):
    lines, content = list(read_lines(written)), written.read_bytes()
    for whole, line in enumerate(lines):
        for cut in {line.start, (line.start + line.end) // 2, line.end - 1}:
            written.write_bytes(content[:cut])
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                assert list(read_lines(written)) == lines[:whole]
            torn = written.suffix == ".gz" and cut > line.start
            assert [f"{written} is torn" in record.getMessage() for record in caplog.records] == [True] * torn


def test_a_file_is_replaced_whichever_form_it_had(tmp_path):
    path = tmp_path / "step_000001.jsonl"
    for limit in (1.0, 10.0, 1.0, None):
        target = write_lines(path, LINES, limit)
        assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    "content", [b"not gzip", gzip.compress(b"two\nlines\n"), gzip.compress(b"no end")], ids=["plain", "two", "open"]
)
def test_a_file_that_is_not_packed_line_by_line_is_refused(tmp_path, content):
    path = tmp_path / "step_000001.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"step_000001.jsonl.gz: what begins at byte 0 cannot be read .*gunzip"):
        list(read_lines(path))
    with pytest.raises(DamagedFile, match="no packed line is there"):
        line_from(b"not gzip", path)
