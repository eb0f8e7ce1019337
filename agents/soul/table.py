"""One table: cells with marks, written for the terminal, as Markdown, as LaTeX (booktabs) and as CSV.

Evaluations, comparisons, figures and plans build a `Table`; all its forms show the same cells.
"""

from __future__ import annotations

import csv
import io
import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from soul.files.whole_file import write_whole

Mark = Literal["", "best", "second"]
NONE = "-"  # the text of a cell without a value
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
# What would end a cell or begin emphasis or code; "a_b" and "12.3 *" are no emphasis.
_MARKDOWN = re.compile(r"[\\|`]|\*(?=\S)|(?<=\S)\*|(?<!\w)_|_(?!\w)")


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
        text = around + markdown_text(self.text) + around
        return f"{text} {markdown_text(self.suffix)}" if self.suffix else text

    @property
    def latex(self) -> str:
        text = self.text.translate(_LATEX)
        marked = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}", "": text}[self.mark]
        return f"{marked} {{\\scriptsize {self.suffix.translate(_LATEX)}}}" if self.suffix else marked


@dataclass(frozen=True)
class Table:
    """A table with names in its first column.

    Attributes:
        lines: text cells; a plain text is a cell without a mark.
        sections: one for each line; the terminal draws a rule between different ones.
        notes: sentences below it.
        words: further columns of text, which are aligned to the left.
        whole: columns that the terminal never wraps.
        optional: columns that a narrow terminal leaves out, the least important first.
        suffixes: name of what the suffixes of the cells are, which a narrow terminal leaves out before any column.
        file: name of its files, without their ending.
        caption: a sentence for its files.
        data: head and lines of its CSV: the numbers in full.
        sources: name, file or folder, and hash of what it was computed from.
    """

    head: Sequence[str]
    lines: Sequence[Sequence[Cell | str]]
    sections: Sequence[str] = ()
    notes: Sequence[str] = ()
    words: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
    optional: Sequence[int] = ()
    suffixes: str = ""
    file: str = ""
    caption: str = ""
    data: Sequence[Sequence[Any]] = ()
    sources: Sequence[tuple[str, Path, str]] = ()

    @property
    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in line] for line in self.lines]

    def rich(self, title: str) -> RichTable:
        """The table for the terminal; its texts are never markup."""
        view = RichTable(title=Text(title), title_justify="left", caption_justify="left")
        for place, name in enumerate(self.head):
            left = place == 0 or place in self.words
            justify: Literal["left", "right"] = "left" if left else "right"
            view.add_column(Text(name), justify=justify, overflow="fold", no_wrap=place in self.whole)
        for place, line in enumerate(self.cells):
            ends = self.sections[place : place + 1] != self.sections[place + 1 : place + 2]
            view.add_row(*(Text(cell.plain) for cell in line), end_section=ends)
        view.caption = Text("\n".join(self.notes)) if self.notes else None
        return view

    def fits(self, width: int) -> bool:
        """Check whether a terminal of this width shows the table without wrapping a cell."""
        return Console(width=10_000).measure(self.rich("")).maximum <= width

    def fitting(self, width: int, where: str, left_out: Sequence[str] = ()) -> Table:
        """The table as a terminal of this width can show it without wrapping a number.

        Heads are folded first, then suffixes and `optional` columns are left out, one after the other, until the rest
        fits; names may be wrapped at words. A note says what was left out.

        Args:
            where: end of the note: "table.md has them".
            left_out: names of what the caller has left out already.
        """
        kept = replace(self, notes=[*self.notes, *_missing_note(left_out, where)])
        if kept.fits(width):
            return kept
        has_suffixes = any(cell.suffix for line in self.cells for cell in line)
        steps: list[str | int] = [*([self.suffixes] if has_suffixes else []), *self.optional]
        for count in range(len(steps) + 1):
            gone = steps[:count]
            names = [step if isinstance(step, str) else " ".join(self.head[step].split()) for step in gone]
            left = [place for place in range(len(self.head)) if place not in gone]
            kept = self._only(left, self.suffixes in gone, _missing_note([*left_out, *names], where))
            if kept._least_width() <= width:
                break
        return kept

    def _only(self, columns: Sequence[int], bare: bool, notes: Sequence[str]) -> Table:
        """These columns with folded heads, whose numbers are never wrapped; `bare`: without suffixes."""
        lines = [[replace(line[place], suffix="") if bare else line[place] for place in columns] for line in self.cells]
        heads = []
        for new, place in enumerate(columns):
            head = self.head[place].removesuffix(f" ({self.suffixes})") if bare else self.head[place]
            head = head.replace(" %", "\N{NO-BREAK SPACE}%")
            word = min(10, max(map(len, re.split("[ \n]", head))))  # a longer word is cut
            heads.append(textwrap.fill(head, max([word, *(cell_len(line[new].plain) for line in lines)], default=1)))
        words = frozenset(new for new, place in enumerate(columns) if place in self.words)
        whole = frozenset(new for new, place in enumerate(columns) if place and place not in self.words - self.whole)
        return Table(heads, lines, self.sections, [*self.notes, *notes], words, whole)

    def _least_width(self) -> int:
        """The width in which a terminal shows the table if it wraps names and other words."""
        width = 1
        for place, head in enumerate(self.head):
            texts = [*head.splitlines(), *(line[place].plain for line in self.cells)]
            parts = texts if place in self.whole else [word for text in texts for word in text.split()]
            width += 3 + max(map(cell_len, parts), default=0)
        return width

    def markdown(self) -> str:
        """The table as Markdown."""
        rules = ["---", *("---" if place in self.words else "---:" for place in range(1, len(self.head)))]
        body = [list(map(markdown_text, self.head)), rules, *([cell.markdown for cell in line] for line in self.cells)]
        return "".join(f"| {' | '.join(line)} |\n" for line in body)

    def latex(self) -> str:
        """The table as a LaTeX `table`; it needs the package booktabs."""
        columns = "".join(
            "l" if place == 0 else r"p{0.4\linewidth}" if place in self.words else "r"
            for place in range(len(self.head))
        )
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
                *(" & ".join(cell.latex for cell in line) + r" \\" for line in self.cells),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def write(self, folder: Path) -> list[Path]:
        """Write `NAME.md` (with caption, notes and sources), `NAME.tex` and `NAME.csv`."""
        notes = "".join(f"\n{markdown_text(note)}\n" for note in self.notes)
        sources = "".join(
            f"- {markdown_text(name)} `{source}` sha256 `{sha256}`\n" for name, source, sha256 in self.sources
        )
        page = f"{markdown_text(self.caption)}\n\n{self.markdown()}{notes}\n{sources}"
        files = {"md": page, "tex": self.latex(), "csv": as_csv(self.data)}
        for ending, text in files.items():
            write_whole(folder / f"{self.file}.{ending}", text)
        return [folder / f"{self.file}.{ending}" for ending in files]


def _missing_note(names: Sequence[str], where: str) -> list[str]:
    return [f"Too narrow for {' and '.join(filter(None, [', '.join(names[:-1]), *names[-1:]]))}: {where}."] * bool(
        names
    )


def terminal(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; a pipe or a file has 120 columns unless COLUMNS says otherwise."""
    console = Console(stderr=stderr)
    if not console.file.isatty() and "COLUMNS" not in os.environ:
        console.width = max(120, console.width)  # rich assumes 80
    return console


def markdown_text(text: str) -> str:
    """Text for a cell or a line of Markdown: no line end, no end of the cell, no tag, no emphasis."""
    return _MARKDOWN.sub(lambda sign: f"\\{sign[0]}", " ".join(text.split())).replace("<", "&lt;")


def as_csv(lines: Iterable[Sequence[Any]]) -> str:
    """Lines of cells as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
