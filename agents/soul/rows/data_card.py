"""The data card of a task file: where its rows come from and what was left out.

That of a training file lies beside it, `FILE.card.json`; a run reads the cards of its files, so that what a model was
trained on can be told afterwards. That of an evaluation file is in the parquet file's own metadata, because such files
are copied alone and a set whose rows stand in for others must not lose that.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from soul.errors import BadRow, one_line
from soul.files.whole_file import whole_file, write_whole
from soul.validation_errors import first_problem

SCHEMA = 1
KEY = b"soul.card"  # of the metadata of an evaluation file
# Whether rows may be published for everyone; "unclear" counts as no.
Share: TypeAlias = Literal["yes", "no", "unclear"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceFile(_Part):
    """A file that the builder read; `name` is its path below SOURCES."""

    name: str
    bytes: int
    sha256: str


class SourceLicence(_Part):
    """The terms of one source, and whether its rows may be published.

    Attributes:
        hub: the licence's identifier on the Hugging Face hub; "" if it has none.
        why: why the rows may not be published; "" if they may.
    """

    source: str
    licence: str
    hub: str = ""
    share: Share
    why: str = ""


class Contamination(_Part):
    """The comparison with evaluation files (name -> SHA-256), and what was left out because it shares a group with one.

    Attributes:
        near: texts that share this much of their words were left out, too; None: only equal ones.
    """

    against: dict[str, str]
    rows: int
    groups: int
    examples: list[str] = []
    near: float | None = None


class ModelCalls(_Part):
    """The calls of one role, over all runs of the builder; `prompt` has its version in its name."""

    role: str
    model: str
    prompt: str
    calls: int
    usd: float | None


class SetCard(_Part):
    """The card of an evaluation file.

    Attributes:
        sources: empty if the rows are generated.
        where: where the sources are published, with their licences.
        licences: of all sources; empty in the card of an older version.
        stands_in: not "": the rows are not the paper's, and why.
        builder: the builder's command line, with file names only.
        left_out: rows of the source that are not in the file, by reason.
    """

    schema_version: int = SCHEMA
    task: str
    rows: int
    sources: list[SourceFile]
    where: str
    licences: list[SourceLicence] = []
    stands_in: str = ""
    builder: str
    left_out: dict[str, int]
    notes: list[str]


class DataCard(SetCard):
    """The card of a training file, `FILE.card.json`.

    Attributes:
        sha256: of the task file, so that a card beside another file is noticed.
        difficulty: in cards of earlier versions; nothing reads it.
        date: UTC, to the second.
    """

    file: str
    sha256: str
    groups: int
    seed: int
    contamination: Contamination
    difficulty: Mapping[str, Mapping[str, Mapping[str, float]]] = {}
    models: list[ModelCalls] = []
    date: str

    @property
    def summary(self) -> str:
        """One line for people."""
        read = ", ".join(source.name for source in self.sources) or "generated"
        compared = ", ".join(self.contamination.against) or "no evaluation file"
        return f"{self.rows:,} rows in {self.groups:,} groups, built {self.date} from {read}; compared with {compared}"


def path_of(file: Path) -> Path:
    """The card of a task file."""
    return file.with_name(f"{file.name}.card.json")


def write(file: Path, card: DataCard) -> None:
    """Write the card of a task file."""
    write_whole(path_of(file), card.model_dump_json(indent=1) + "\n")


def read(file: Path) -> DataCard | None:
    """The card of a task file; None if it has none.

    Raises:
        BadRow: the card cannot be read, or describes another file.
    """
    path = path_of(file)
    if not path.is_file():
        return None
    try:
        card = DataCard.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = first_problem(error)
        raise BadRow(f"{path}: field {problem.field or 'card'}: {problem.message}. Build the file again.") from error
    if card.sha256 != sha256(file):
        raise BadRow(
            f"{path} describes another file than {file.name} beside it. Build the file again, or remove the card."
        )
    return card


def write_inside(file: Path, card: SetCard) -> None:
    """Write the card of an evaluation file into its metadata."""
    with whole_file(file, shared=True) as partial, pq.ParquetFile(file) as source:
        schema = source.schema_arrow
        schema = schema.with_metadata({**(schema.metadata or {}), KEY: card.model_dump_json().encode()})
        with pq.ParquetWriter(partial, schema) as copy:
            for group in range(source.num_row_groups):
                copy.write_table(source.read_row_group(group).replace_schema_metadata(schema.metadata))


def read_inside(file: Path) -> SetCard | None:
    """The card in the metadata of an evaluation file; None if it has none.

    Raises:
        BadRow: the file or its card cannot be read.
    """
    try:
        text = (pq.read_schema(file).metadata or {}).get(KEY)
    except (pa.ArrowException, OSError) as error:
        raise BadRow(f"{file}: not a readable parquet file ({one_line(error, 200)}). Build the file again.") from error
    try:
        return None if text is None else SetCard.model_validate_json(text)
    except ValidationError as error:
        raise BadRow(f"{file}: its data card cannot be read ({one_line(error, 200)}). Build the file again.") from error


def sha256(file: Path) -> str:
    """The hash of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def source_files(files: list[Path], root: Path) -> list[SourceFile]:
    """Names below `root`, sizes and hashes of source files."""
    return [
        SourceFile(name=str(file.relative_to(root)), bytes=file.stat().st_size, sha256=sha256(file)) for file in files
    ]
