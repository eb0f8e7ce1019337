"""One table in all its forms: the same cells, whatever text they hold."""

import csv
import io
import re
from pathlib import Path

from rich.console import Console

from soul.table import Cell, Table

HOSTILE = "[b]a|b_c[/b] <i> `x` 5 % & $y$"
TABLE = Table(
    head=["set", "first\n(card)", "words"],
    lines=[[HOSTILE, Cell("66.7", "best", "[33.3, 100.0]"), "some *marked* words"], ["alignx_pair", "12.3 *", "-"]],
    sections=["one", "two"],
    notes=["A note about <b>it</b>."],
    words=frozenset({2}),
    file="scores",
    caption="Scores of 2 sets.",
    data=[("set", "mean"), (HOSTILE, 2 / 3)],
    sources=[("run", Path("outputs/run"), "abc")],
)


def test_the_terminal_shows_every_cell_as_text_with_a_rule_between_sections() -> None:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(TABLE.rich("Title of [b]x[/b]"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    rows = [line for line in shown.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]
    assert cells == [[HOSTILE, "66.7 [33.3, 100.0]", "some *marked* words"], ["alignx_pair", "12.3 *", "-"]]
    assert "├" in shown and "Title of [b]x[/b]" in shown and "A note about <b>it</b>." in shown
    assert TABLE.fits(200) and not TABLE.fits(40)


def test_markdown_and_latex_escape_what_is_text_and_mark_the_best(tmp_path: Path) -> None:
    head, rule, first, second = TABLE.markdown().splitlines()
    assert head == "| set | first (card) | words |" and rule == "| --- | ---: | --- |"
    assert len(re.split(r"(?<!\\)\|", first)) == 5 and "**66.7** [33.3, 100.0]" in first
    assert r"[b]a\|b_c[/b] &lt;i> \`x\`" in first and r"some \*marked\* words" in first
    assert second == "| alignx_pair | 12.3 * | - |"
    page, latex, numbers = (path.read_text() for path in TABLE.write(tmp_path))
    assert page.startswith("Scores of 2 sets.\n\n| set |") and "- run `outputs/run` sha256 `abc`" in page
    assert r"\textbf{66.7} {\scriptsize [33.3, 100.0]}" in latex and r"5 \% \& \$y\$" in latex
    assert list(csv.reader(io.StringIO(numbers))) == [["set", "mean"], [HOSTILE, str(2 / 3)]]  # in full
