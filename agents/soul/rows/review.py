"""The rows of training files and what was left out, for people to read and mark: `Review(data/sim_rl_data)`.

`python -m data.train` writes FILE.left_out.jsonl beside each file, a line for each item that it left out and why. A
mark is a line in marks.jsonl, and the last one of a row counts. The next build leaves out rows that are marked "drop",
and builds those that are marked "keep" although the answer of a model broke a rule. It never builds a row that shares
a group with an evaluated one.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pyarrow.parquet as pq

from soul.errors import BadSettings
from soul.files.line_file import append_line, read_lines
from soul.files.whole_file import write_whole
from soul.record import digest
from soul.row_fields import without_nulls
from soul.rows import data_card
from soul.rows.task_files import COLUMNS, TaskRow, parse_row

Mark = Literal["keep", "drop"]
MARKS, LISTED, BY_HAND = "marks.jsonl", ".left_out.jsonl", "dropped by hand"
PAGE = 50  # rows


class LeftOut(NamedTuple):
    """An item of a source that is not in the file; `may_keep`: a mark can put it there."""

    row: str
    reason: str
    source: Mapping[str, Any]
    result: Mapping[str, Any]
    may_keep: bool


def row_key(fields: Mapping[str, Any]) -> str:
    """The name of a row in marks: a hash of its fields, equal in every build that writes the same row."""
    return digest({name: value for name, value in without_nulls(dict(fields)).items() if name != "index"})[:16]


def shown_fields(row: TaskRow) -> dict[str, Any]:
    """The fields of a row for people, without its place and its defaults."""
    fields: dict[str, Any] = row.row.model_dump(mode="json", exclude={"index"}, exclude_defaults=True)
    return fields


def write_left_out(file: Path, items: list[LeftOut]) -> None:
    """Write the list of what was left out of a task file."""
    write_whole(file.with_name(f"{file.name}{LISTED}"), (f"{json.dumps(item._asdict())}\n" for item in items))


def marks_of(file: Path) -> dict[str, Mark]:
    """The last mark of each row of a task file."""
    marks = file.with_name(MARKS)
    lines = map(json.loads, (line.text for line in read_lines(marks))) if marks.exists() else ()
    return {line["row"]: line["mark"] for line in lines if line["file"] == file.name}


class Review:
    """The training files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def about(self) -> list[dict[str, Any]]:
        """Each file with its card, its number of rows, and the numbers of left-out items by reason and of marks."""
        files = []
        for file in sorted(self.folder.glob("*.parquet")):
            card, listed = data_card.read(file), Counter(item.reason for item in _left_out(file))
            about = {"file": file.name, "rows": pq.read_metadata(file).num_rows, "left_out": listed}
            files.append({**about, "marks": Counter(marks_of(file).values()), "card": card and card.model_dump()})
        return files

    def rows(self, file: str, reason: str = "", text: str = "", first: int = 0) -> dict[str, Any]:
        """Fifty rows of a file from the `first` on, in order, and the number of all that match.

        Args:
            reason: of what was left out; "": the rows of the file.
            text: what a row must contain, upper and lower case alike.
        """
        path, wanted = self._path(file), json.dumps(text.casefold(), ensure_ascii=False)[1:-1]
        marks = marks_of(path)
        found: Iterator[Any] = (item for item in _left_out(path) if item.reason == reason) if reason else _built(path)
        if wanted:
            found = (one for one in found if wanted in json.dumps(one, ensure_ascii=False).casefold())
        whole, total = not reason and not wanted, 0
        page: list[Any] = []
        for total, one in enumerate(islice(found, first + PAGE if whole else None), start=1):
            if total > first and len(page) < PAGE:
                page.append(one)
        total = pq.read_metadata(path).num_rows if whole else total
        shown = [one._asdict() if reason else _shown(one[0], one[1], file) for one in page]
        return {"total": total, "rows": [{**one, "mark": marks.get(one["row"])} for one in shown]}

    def mark(self, file: str, row: str, mark: Mark) -> None:
        """Mark a row for the next build; nothing that must stay left out can be marked "keep"."""
        path = self._path(file)
        may = {item.row: item.may_keep for item in _left_out(path)}
        if mark not in get_args(Mark) or not (row in may or any(row == row_key(fields) for _, fields in _built(path))):
            raise BadSettings(f"{path}, row {row}: no such row, or {mark!r} is no mark. Load the page again.")
        if mark == "keep" and not may.get(row, True):
            raise BadSettings(f"{path}, row {row}: stays out: it is in a group with an evaluated row, or has no text.")
        line = {"file": file, "row": row, "mark": mark, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        append_line(self.folder / MARKS, json.dumps(line))

    def _path(self, file: str) -> Path:
        if file not in {path.name for path in self.folder.glob("*.parquet")}:
            raise BadSettings(f"{self.folder} has no training file {file!r}. Build it with python -m data.train.")
        return self.folder / file


def _left_out(file: Path) -> Iterator[LeftOut]:
    listed = file.with_name(f"{file.name}{LISTED}")
    lines = read_lines(listed) if listed.exists() else ()
    return (LeftOut(**json.loads(line.text)) for line in lines)


def _built(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(PAGE, columns=list(COLUMNS)):
            for record in batch.to_pylist():
                yield record["data_source"], without_nulls(record["extra_info"])


def _shown(task: str, fields: dict[str, Any], file: str) -> dict[str, Any]:
    parsed = parse_row(task, fields, file)
    prompt = "\n\n".join(message["content"] for message in parsed.task.prompt(parsed.row))
    return LeftOut(row_key(fields), "", {"prompt": prompt}, shown_fields(parsed), may_keep=True)._asdict()
