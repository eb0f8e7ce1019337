"""A table of text cells, written as Markdown, as LaTeX (booktabs) and as CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from soul.figures.csv_text import as_csv
from soul.files.whole_file import write_whole

Mark = Literal["", "best", "second"]
_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "†": r"$\dagger$",
        "‡": r"$\ddagger$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
    }
)


@dataclass(frozen=True)
class Cell:
    """A cell: its text, and whether it is the best of its line (bold) or the second (italic; in LaTeX underlined).

    Attributes:
        suffix: text after it that is never marked: an interval, a sign.
    """

    text: str
    mark: Mark = ""
    suffix: str = ""

    @property
    def plain(self) -> str:
        return f"{self.text} {self.suffix}" if self.suffix else self.text

    @property
    def markdown(self) -> str:
        around = {"best": "**", "second": "*", "": ""}[self.mark]
        text = around + _one_line(self.text) + around
        return f"{text} {_one_line(self.suffix)}" if self.suffix else text

    @property
    def latex(self) -> str:
        text = self.text.translate(_LATEX)
        marked = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}", "": text}[self.mark]
        return f"{marked} {{\\scriptsize {self.suffix.translate(_LATEX)}}}" if self.suffix else marked


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        file: name of its files, without their ending.
        caption: a sentence.
        data: head and lines of its CSV: the numbers in full.
        notes: sentences below it.
        sources: name, file or folder, and hash of what it was computed from.
        wide: columns that hold paragraphs.
    """

    file: str
    caption: str
    head: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    data: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()
    sources: Sequence[tuple[str, Path, str]] = ()
    wide: frozenset[int] = frozenset()

    def write(self, folder: Path) -> list[Path]:
        """Write `NAME.md`, `NAME.tex` and `NAME.csv`."""
        files = {"md": self.markdown(), "tex": self.latex(), "csv": as_csv(self.data)}
        for ending, text in files.items():
            write_whole(folder / f"{self.file}.{ending}", text)
        return [folder / f"{self.file}.{ending}" for ending in files]

    def markdown(self) -> str:
        """The table as Markdown, notes below."""
        rules = ["---", *("---" if place in self.wide else "---:" for place in range(1, len(self.head)))]
        body = [list(map(_one_line, self.head)), rules, *([cell.markdown for cell in line] for line in self.lines)]
        table = "".join(f"| {' | '.join(cells)} |\n" for cells in body)
        notes = "".join(f"\n{_one_line(note)}\n" for note in self.notes)
        sources = "".join(
            f"- {_one_line(name)} `{source}` sha256 `{sha256}`\n" for name, source, sha256 in self.sources
        )
        return f"{_one_line(self.caption)}\n\n{table}{notes}\n{sources}"

    def latex(self) -> str:
        """The table as a LaTeX `table`; it needs the package booktabs."""
        columns = "".join(
            "l" if place == 0 else r"p{0.4\linewidth}" if place in self.wide else "r" for place in range(len(self.head))
        )
        body = [" & ".join(cell.latex for cell in line) + r" \\" for line in self.lines]
        return "\n".join(
            [
                *(f"% {' '.join(note.split())}" for note in self.notes),
                *(f"% {name} {source} sha256 {sha256}" for name, source, sha256 in self.sources),
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{self.caption.translate(_LATEX)}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                " & ".join(title.translate(_LATEX) for title in self.head) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


def _one_line(text: str) -> str:
    """Text for a cell of Markdown: no line end, no end of the cell, no tag, no emphasis."""
    return re.sub(r"([\\|*_`])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")
