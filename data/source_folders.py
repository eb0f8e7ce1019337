"""The files of SOURCES: which folder belongs to a set, and which of its files the set's builder reads.

Files are glob patterns, in upper or lower case, below a folder of SOURCES. A folder belongs to a set if it has the
set's name or that of a repository that publishes it, so clones of the authors' repositories work as they are.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from data.licences import Origin

_REPOSITORY = re.compile(r"(?:github\.com|huggingface\.co/datasets)/[\w.-]+/([\w.-]*\w)")
# Files that come with every download, and those that never hold rows of an evaluation set.
_WITH_EVERY_DOWNLOAD = ("SOURCE.txt", "README*", "LICENSE*")
_NOT_FOR_EVALUATION = ("*sample*", "train*", "val*")


class Form(NamedTuple):
    """One form in which a source is published.

    Attributes:
        files: patterns below the folder; each must match at least one file.
        stands_in: a remark for the user if these are not the rows that the paper evaluates; else "".
        options: command-line options of the builder for this form.
    """

    files: tuple[str, ...]
    stands_in: str = ""
    options: tuple[str, ...] = ()


class SourceMatch(NamedTuple):
    """The files of SOURCES that belong to one set.

    Attributes:
        folder: where they are, or where to put them.
        form: the complete form; None if there is none.
        files: the files that the form's patterns match.
        missing: patterns of the nearest form that match nothing; empty if a form is complete.
        beside: further files that the builder reads.
    """

    folder: Path
    form: Form | None
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()
    beside: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Build:
    """The way in which the file of a set is built: `python -m data.BUILDER convert FIRST FILES... OPTIONS --out FILE`.

    Attributes:
        builder: the module in data/.
        origins: where to get the source, and under which terms.
        forms: the forms of the source, the best one first.
        options: command-line options of the builder.
        other_folders: names that the folder below SOURCES may have, if not that of the builder.
        first: arguments that go before the files.
        beside: patterns of optional files that the builder finds by itself.
        unused: patterns of files in the folder that do not belong to this set.
        takes_training_files: files named "train*", "val*" and "*sample*" do belong to it.
        hint: what else the user should know about getting the files.
    """

    builder: str
    origins: tuple[Origin, ...]
    forms: tuple[Form, ...]
    options: tuple[str, ...] = ()
    other_folders: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    takes_training_files: bool = False
    hint: str = ""

    @property
    def where(self) -> str:
        """The place to get the source from, for people."""
        return "; ".join([*map(str, self.origins), *([self.hint] if self.hint else [])])

    @property
    def folders(self) -> tuple[str, ...]:
        """Names that a folder below SOURCES may have: the builder's or its own, and those of the repositories."""
        own = self.other_folders or (self.builder,)
        return (*own, *(name for origin in self.origins for name in _REPOSITORY.findall(origin.where)))

    def find(self, root: Path) -> SourceMatch:
        """Match the files of SOURCES: the first complete form, or else the one with the most files.

        A form is complete in one folder if possible, or its files are taken from several.
        """
        below = root.iterdir() if root.is_dir() else ()
        folders = sorted(path for path in below if path.is_dir() and not path.name.startswith("."))
        names = dict.fromkeys(map(_plain, self.folders))
        homes = {f: _files_below(f) for name in names for f in folders if _plain(f.name) == name}
        found = {form: self._find_form(form, homes) for form in self.forms}
        complete = next((form for form in self.forms if all(found[form])), None)
        best = complete or max(self.forms, key=lambda form: sum(map(bool, found[form])))
        files = tuple(dict.fromkeys(path for match in found[best] for path in match))
        missing = tuple(pattern for pattern, match in zip(best.files, found[best], strict=True) if not match)
        home = next(iter(homes), root / self.folders[0])
        if files:
            home = next(folder for folder in folders if folder in files[0].parents)
        beside = (path for pattern in self.beside for path in self._matching(home, homes.get(home, []), pattern))
        return SourceMatch(home, complete, files, missing, tuple(beside))

    def what_to_get(self, match: SourceMatch) -> str:
        """Name the files to put, and the places for them; `match` must not be complete."""
        patterns = match.missing if match.files else self.forms[0].files
        wanted = ", ".join(pattern.removeprefix("**/") for pattern in patterns)
        return f"put {wanted} into {match.folder}. Source: {self.where}"

    def arguments(self, match: SourceMatch, out: Path) -> list[str]:
        """The builder's command line; `match` must be complete."""
        assert match.form is not None, match
        return ["convert", *self.first, *map(str, match.files), *self.options, *match.form.options, "--out", str(out)]

    def _find_form(self, form: Form, homes: Mapping[Path, Sequence[Path]]) -> list[list[Path]]:
        """The files of each pattern of a form."""
        by_home = [[self._matching(home, files, pattern) for pattern in form.files] for home, files in homes.items()]
        if whole := next((found for found in by_home if all(found)), None):
            return whole
        return [next((found[place] for found in by_home if found[place]), []) for place in range(len(form.files))]

    def _matching(self, home: Path, files: Sequence[Path], pattern: str) -> list[Path]:
        named = "*" not in pattern.removeprefix("**/")  # a pattern without wildcards always matches
        fitting = (path for path in files if _fits(path.parts, pattern.split("/")))
        return [home / path for path in fitting if named or not self._is_unused(path)]

    def _is_unused(self, path: Path) -> bool:
        patterns = (*_WITH_EVERY_DOWNLOAD, *(() if self.takes_training_files else _NOT_FOR_EVALUATION), *self.unused)
        return any(fnmatch(path.name, pattern) for pattern in patterns)


def _files_below(folder: Path) -> list[Path]:
    """The files of a folder, as paths below it, in alphabetical order, without hidden files and folders."""
    found: list[Path] = []
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith(".")]
        found += (Path(place).relative_to(folder) / name for name in names if not name.startswith("."))
    return sorted(found)


def _plain(name: str) -> str:
    """The name of a folder without case and punctuation: "Hi-ToM_dataset" and "hi_tom_dataset" are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Match the parts of a path with those of a glob pattern, in upper or lower case."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(path[start:], pattern[1:]) for start in range(len(path)))
    return bool(path) and fnmatch(path[0].lower(), pattern[0].lower()) and _fits(path[1:], pattern[1:])
