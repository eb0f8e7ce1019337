"""Build one training file: run the task's builder, leave out what is evaluated, and write the card beside it."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from data.builder_cli import Built, ModelUse
from data.source_folders import SourceMatch, describe_files
from data.sources import EVALUATION_SETS
from data.training import report
from data.training.kept_rows import Kept, copy_kept
from data.training.report import Samples
from data.training.table import RunOptions, TrainingBuild
from soul import tasks
from soul.cli.error_border import keep_traceback
from soul.errors import SoulError, one_line
from soul.rows import data_card as card
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows

EVALUATED = "in groups that are drawn for evaluation"


@dataclass(frozen=True)
class Outcome:
    """The result for one training file: built, or why not.

    Attributes:
        left_out: rows of the source that are not in the file, by reason.
        contaminated: rows left out because they share a group with an evaluated one.
        remarks: what the user should know, or what to do.
        models: the models that were asked.
    """

    name: str
    state: Literal["built", "no source", "failed"]
    rows: int = 0
    groups: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    contaminated: int = 0
    remarks: tuple[str, ...] = ()
    models: tuple[ModelUse, ...] = ()


@dataclass(frozen=True)
class Evaluated:
    """The evaluation files that a training file must not share groups with.

    Attributes:
        files: set -> its file.
        hashes: name of a file -> its SHA-256.
        near: see `HeldOut`.
    """

    files: Mapping[str, Path]
    hashes: Mapping[str, str]
    held_out: HeldOut
    near: float | None

    @classmethod
    def in_folder(cls, folder: Path, near: float | None) -> Evaluated:
        """All evaluation files in `folder`.

        Raises:
            BadRow: one of them cannot be read.
        """
        paths = {name: folder / f"{part.file}.parquet" for name, part in EVALUATION_SETS.items()}
        files = {name: path for name, path in paths.items() if path.is_file()}
        rows = read_rows([str(path) for path in files.values()])
        return cls(files, {path.name: card.sha256(path) for path in files.values()}, HeldOut(rows, near), near)


def file_of(name: str, data: Path) -> Path:
    """The training file of a task below DATA_DIR."""
    return data / "sim_rl_data" / f"{tasks.TASK_FILES[name].train}.parquet"


def what_to_get(build: TrainingBuild, match: SourceMatch) -> str:
    """Which files to put where."""
    assert match.form is None
    wanted = describe_files(match.missing if match.files else build.forms[0].files)
    return f"put {wanted} into {match.folder}. Source: {build.where}"


def _shown(word: str) -> str:
    """A word of a builder's command line for the card: files by their names, settings as they are."""
    return word if "=" in word else Path(word).name


SHARE_BOOKS = frozenset({"coser", "lifechoices"})  # tasks whose rows are from novels; a book may be in both


@dataclass(frozen=True)
class Building:
    """How training files are built in one run of the command.

    Attributes:
        sources: the folder with a folder for each benchmark.
        data: DATA_DIR.
        options: what is passed to the builders.
    """

    sources: Path
    data: Path
    evaluated: Evaluated
    options: RunOptions

    def run(self, name: str, build: TrainingBuild) -> Outcome:
        """Write a task's training file and its card, if its source is there. A bad source is an outcome, no error."""
        match = build.find(self.sources)
        if match.form is None:
            # The folder may hold a part of the files for the sake of the evaluation set, so this is no failure.
            return Outcome(name, "no source", remarks=(what_to_get(build, match),))
        print(f"building {name}", file=sys.stderr)
        out = file_of(name, self.data)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=out.parent) as scratch:
            raw = Path(scratch) / out.name
            words = build.training_arguments(match, raw, Path(scratch) / "other.parquet", self.options)
            try:
                return self._build(name, build, match, words, raw)
            except (OSError, ValueError, SoulError) as error:
                return Outcome(name, "failed", remarks=(one_line(error).replace(f"{scratch}/", ""),))
            except Exception as error:  # noqa: BLE001 - a defect of one builder must not stop the others
                where = keep_traceback(error)
                return Outcome(name, "failed", remarks=(f"{type(error).__name__}: {one_line(error)} ({where})",))

    def _build(self, name: str, build: TrainingBuild, match: SourceMatch, words: Sequence[str], raw: Path) -> Outcome:
        built: Built = importlib.import_module(f"data.{build.builder}").build(words)
        out = file_of(name, self.data)
        samples = Samples(self.options.seed)
        kept = copy_kept(raw, out, self.evaluated.held_out, samples.keep, samples.drop)
        if built.decisions:
            samples.replace_with(built.decisions)
        # The evaluation side of a split is no file of this command, so its rows count as left out.
        left_out = {**built.left_out, **({EVALUATED: built.files[1].rows} if build.split else {})}
        about = self._card(name, build, match, built, kept, words, left_out)
        card.write(out, about)
        report.write(out, about, samples)
        notes = (*self._remarks(name, match), *built.notes)
        return Outcome(name, "built", kept.rows, kept.groups, left_out, kept.left_out_rows, notes, built.models)

    def _remarks(self, name: str, match: SourceMatch) -> Iterator[str]:
        assert match.form is not None, match
        if match.form.stands_in:
            yield match.form.stands_in
        for evaluated in sorted(SHARE_BOOKS) if name in SHARE_BOOKS else [name]:
            if evaluated not in self.evaluated.files:
                file = f"{EVALUATION_SETS[evaluated].file}.parquet"
                yield f"NOT compared with the evaluation set {evaluated}: {file} does not exist"

    def _card(
        self,
        name: str,
        build: TrainingBuild,
        match: SourceMatch,
        built: Built,
        kept: Kept,
        words: Sequence[str],
        left_out: Mapping[str, int],
    ) -> card.DataCard:
        assert match.form is not None, match
        out = file_of(name, self.data)
        compared = card.Contamination(
            against=dict(self.evaluated.hashes),
            rows=kept.left_out_rows,
            groups=kept.left_out_groups,
            examples=list(kept.examples),
            near=self.evaluated.near,
        )
        command = ["python -m", f"data.{build.builder}", *(_shown(word) for word in words)]
        return card.DataCard(
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
            models=[card.ModelCalls(**use._asdict()) for use in built.models],
            left_out=dict(left_out),
            notes=list(built.notes),
            contamination=compared,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )
