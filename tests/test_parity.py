"""The parity page: every set of SOUL is on it, and both sides of every comparison really run."""

from pathlib import Path

import pytest

from benchmarks.parity.__main__ import COMPARISONS, filled, main, run
from benchmarks.parity.comparison import Comparison, authors_names
from soul.errors import BadSettings
from soul.suites import soul_v1

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "parity.md").read_text(encoding="utf-8")


def sets_of(text: str) -> list[str]:
    """ "a_x, _y" names a_x and a_y."""
    first, *others = text.split(", ")
    return [first, *(first.rpartition("_")[0] + other if other.startswith("_") else other for other in others)]


def test_every_set_has_a_line_and_every_comparison_has_one_too() -> None:
    lines = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert set(soul_v1.SETS) <= {name for line in lines for name in sets_of(line)}
    assert filled(PAGE, [(one, (0.0,)) for one in COMPARISONS]).count("| 1 of 1 | 0.00 |") == len(COMPARISONS)
    assert "skipped" not in PAGE


def test_ours_and_the_authors_function_score_the_same_cases(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "score.py").write_text(
        "import an_engine_that_nobody_has\nHALF = 0.5\ndef score(text):\n    return HALF * text.count('a')\n"
    )

    def theirs(clone: Path):  # type: ignore[no-untyped-def]
        return authors_names(clone / "score.py", ["HALF", "score"], {})["score"]

    one = Comparison("hitom", "number", "clone", ["a", "aA"], lambda t: t.lower().count("a") / 2, theirs)
    differences = run(one, tmp_path)
    assert differences == (0.0, 0.5)
    line = "| hitom | number | authors | clone | {} | Capitals \\| count. |\n"
    assert filled(line.format(" | "), [(one, differences)]) == line.format("1 of 2 | 0.50")
    with pytest.raises(BadSettings, match="0 lines for hitom, number, clone"):
        filled("| hitom | number | authors | other | | |\n", [(one, differences)])
    assert "not there" in run(one, tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"score\.py: no other in this file"):
        authors_names(tmp_path / "clone" / "score.py", ["other"], {})


def test_a_page_is_not_written_without_the_authors_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    assert main(["--authors", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    assert "is not written" in capsys.readouterr().err and (tmp_path / "page.md").read_text() == PAGE
