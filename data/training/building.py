"""Build one training file: run the task's builder, leave out what is evaluated, and write the card beside it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from scipy.cluster.hierarchy import DisjointSet

from data.builder_cli import Built, builder_of
from data.rows import write_table
from data.sets import BuildResult, evaluation_file, result_of
from data.source_folders import SourceMatch
from data.sources import EVALUATION_SETS
from data.training.table import RunOptions, TrainingBuild
from soul import tasks
from soul.rows import data_card as card
from soul.rows.overlap import HeldOut, ScopedKey, group_keys
from soul.rows.review import BY_HAND, LeftOut, marks_of, row_key, shown_fields, write_left_out
from soul.rows.task_files import read_rows, read_table

EVALUATED = "in groups that are drawn for evaluation"
SHARE_BOOKS = frozenset({"coser", "lifechoices"})  # tasks whose rows are from novels; a book may be in both
_EXAMPLES = 3


class Evaluated(NamedTuple):
    """The evaluation files that a training file must not share groups with.

    Attributes:
        files: set -> its file.
        near: see `HeldOut`.
    """

    files: Mapping[str, Path]
    held_out: HeldOut
    near: float | None

    @classmethod
    def in_folder(cls, data: Path, near: float | None) -> Evaluated:
        """All evaluation files below DATA_DIR.

        Raises:
            BadRow: one of them cannot be read.
        """
        paths = {name: evaluation_file(data, name) for name in EVALUATION_SETS}
        files = {name: path for name, path in paths.items() if path.is_file()}
        return cls(files, HeldOut(read_rows([str(path) for path in files.values()]), near), near)


class Kept(NamedTuple):
    """Rows and groups of a copy, and of what shares a group with evaluated rows, with names of some of the latter.

    Attributes:
        left_out: the rows that were not copied.
    """

    rows: int
    groups: int
    left_out_rows: int
    left_out_groups: int
    examples: tuple[str, ...]
    left_out: list[LeftOut]


def _add(groups: DisjointSet, keys: Sequence[ScopedKey]) -> None:
    """Add the keys of one row: rows that share a key, directly or through other rows, are one group."""
    hashes = [hash(key) for key in keys]  # a conversation has a key for each of its lines
    for key in hashes:
        groups.add(key)
        groups.merge(hashes[0], key)


def copy_kept(source: Path, out: Path, held_out: HeldOut, by_hand: Collection[str] = ()) -> Kept:
    """Copy the task file `source` to `out`, completely or not at all, without rows that share a group with `held_out`.

    Every row is validated by its task's schema.

    Args:
        by_hand: keys (`review.row_key`) of further rows that are left out.

    Raises:
        BadRow: a row does not satisfy its task's schema.
        ValueError: no row is left.
    """
    table = read_table(str(source))
    kept, left_out = DisjointSet(), DisjointSet()
    examples: dict[str, None] = {}
    dropped: list[LeftOut] = []
    chosen: list[int] = []
    evaluated = 0
    records = table["extra_info"].to_pylist()
    for number, (record, row) in enumerate(zip(records, read_rows([str(source)]), strict=True)):
        keys, name = group_keys(row), row_key(record)
        if shared := held_out.shared_keys(keys):
            _add(left_out, shared)
            evaluated += 1
            key = shared[0][1]
            told = f"evaluated: {key.kind}", {"shares": str(key)}, shown_fields(row)
            dropped.append(LeftOut(name, *told, may_keep=False))
            examples |= {str(key): None} if len(examples) < _EXAMPLES else {}
        elif name in by_hand:
            dropped.append(LeftOut(name, BY_HAND, {}, shown_fields(row), may_keep=True))
        else:
            _add(kept, keys)
            chosen.append(number)
    if not chosen:
        hand = f", or was {BY_HAND}" if evaluated < len(records) else ""
        raise ValueError(
            f"every one of its {len(records):,} rows shares a group with an evaluation set{hand}; use other rows"
        )
    write_table(table.take(chosen), out)
    return Kept(len(chosen), kept.n_subsets, evaluated, left_out.n_subsets, tuple(examples), dropped)


def file_of(name: str, data: Path) -> Path:
    """The training file of a task below DATA_DIR."""
    return data / "sim_rl_data" / f"{tasks.TASK_FILES[name].train}.parquet"


def build_validation(name: str, build: TrainingBuild, data: Path, seed: int) -> tuple[Path, int]:
    """Generate rows to validate a training run on, for whoever lacks the benchmark's own file.

    They have another seed than the training rows. The file is not the benchmark's, so it is not where an evaluation
    looks; `run_rl.sh` falls back to it. Returns the file and its number of rows.
    """
    file = tasks.generated_validation_file(tasks.TASK_FILES[name], data)
    file.parent.mkdir(parents=True, exist_ok=True)
    words = [build.command, *build.validation, "--seed", str(seed + 1), "--out", str(file)]
    built = builder_of(build.builder).build(words)
    return file, built.files[0].rows


class Building(NamedTuple):
    """The building of training files in one run of the command: from SOURCES into DATA_DIR."""

    sources: Path
    data: Path
    evaluated: Evaluated
    options: RunOptions

    def run(self, name: str, build: TrainingBuild) -> BuildResult:
        """Write a task's training file and its card, if its source is there. A bad source is an outcome, no error."""
        match = build.find(self.sources)
        if match.form is None:
            # The folder may hold a part of the files for the sake of the evaluation set, so this is no failure.
            return BuildResult(name, "no source", remarks=(build.what_to_get(match),))
        print(f"building {name}", file=sys.stderr)
        out = file_of(name, self.data)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=out.parent) as scratch:
            raw = Path(scratch) / out.name
            keep = tuple(key for key, mark in marks_of(out).items() if mark == "keep")
            words = build.training_arguments(
                match, raw, Path(scratch) / "other.parquet", self.options._replace(keep=keep)
            )

            def write() -> BuildResult:
                built = builder_of(build.builder).build(words)
                return self._write(name, build, match, words, built, raw)

            return result_of(name, write, scratch=f"{scratch}/")

    def _write(
        self, name: str, build: TrainingBuild, match: SourceMatch, words: Sequence[str], built: Built, raw: Path
    ) -> BuildResult:
        """Copy the builder's rows without the evaluated ones, and write the card and what was left out."""
        assert match.form is not None, match
        out = file_of(name, self.data)
        kept = copy_kept(raw, out, self.evaluated.held_out, {r for r, mark in marks_of(out).items() if mark == "drop"})
        by_hand = len(kept.left_out) - kept.left_out_rows
        # The evaluation side of a split is no file of this command, so its rows count as left out.
        left_out = {**built.left_out, **({EVALUATED: built.files[1].rows} if build.split else {})}
        left_out |= {BY_HAND: by_hand} if by_hand else {}
        # Words of the command line: files by their names, settings as they are.
        command = ["python -m", f"data.{build.builder}", *(w if "=" in w else Path(w).name for w in words)]
        about = card.DataCard(
            task=tasks.TASK_FILES[name].task,
            file=out.name,
            sha256=card.sha256(out),
            rows=kept.rows,
            groups=kept.groups,
            sources=card.source_files([*match.files, *match.beside], self.sources),
            where=build.where,
            licences=[origin.stated() for origin in build.origins],
            stands_in=match.form.stands_in,
            builder=" ".join(command),
            seed=self.options.seed,
            models=list(built.models),
            left_out=dict(left_out),
            notes=list(built.notes),
            contamination=card.Contamination(
                against={path.name: card.sha256(path) for path in self.evaluated.files.values()},
                rows=kept.left_out_rows,
                groups=kept.left_out_groups,
                examples=list(kept.examples),
                near=self.evaluated.near,
            ),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        card.write(out, about)
        write_left_out(out, [*built.dropped, *kept.left_out])
        notes = (*self._remarks(name, match.form.stands_in), *built.notes)
        return BuildResult(name, "built", kept.rows, notes, kept.groups, left_out, kept.left_out_rows, built.models)

    def _remarks(self, name: str, stands_in: str) -> Iterator[str]:
        if stands_in:
            yield stands_in
        for evaluated in sorted(SHARE_BOOKS) if name in SHARE_BOOKS else [name]:
            if evaluated not in self.evaluated.files:
                file = f"{EVALUATION_SETS[evaluated].file}.parquet"
                yield f"NOT compared with the evaluation set {evaluated}: {file} does not exist"
