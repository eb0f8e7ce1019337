"""The parity table: every set of SOUL is in it, the page shows it whole, and both sides really are run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.parity.__main__ import all_comparisons, main, page_of, run
from benchmarks.parity.comparison import Comparison, authors_names
from soul.suites import soul_v1

PAGE = Path(__file__).resolve().parents[1] / "docs" / "parity.md"


def sets_of(text: str) -> list[str]:
    """ "a_x, _y" names a_x and a_y."""
    first, *others = text.split(", ")
    return [first, *(first.rpartition("_")[0] + other if other.startswith("_") else other for other in others)]


def test_every_set_has_a_line_and_the_page_shows_all_lines() -> None:
    lines = list(all_comparisons())
    named = {name for line in lines for name in sets_of(line.evaluation_set)}
    assert set(soul_v1.SETS) <= named, set(soul_v1.SETS) - named
    page = PAGE.read_text(encoding="utf-8")
    for line in lines:
        assert f"| {line.evaluation_set} | {line.metric} | {line.follows} | {line.repository} |" in page
        assert line.differs[1:].removesuffix(".").replace("|", "\\|") in page
    assert "skipped" not in page


def test_ours_and_the_authors_function_score_the_same_cases(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "score.py").write_text(
        "import an_engine_that_nobody_has\nHALF = 0.5\ndef score(text):\n    return HALF * text.count('a')\n"
    )

    def theirs(clone: Path):  # type: ignore[no-untyped-def]
        return authors_names(clone / "score.py", ["HALF", "score"], {})["score"]

    comparison = Comparison(
        "hitom", "number", "authors", "capitals count", "clone", ["a", "aA"], lambda t: t.lower().count("a") / 2, theirs
    )
    assert run(comparison, tmp_path).differences == (0.0, 0.5)
    assert "| hitom | number | authors | clone | 1 of 2 | 0.50 | Capitals count. |" in page_of(
        [run(comparison, tmp_path)]
    )
    assert "not there" in run(comparison, tmp_path / "elsewhere").skipped
    with pytest.raises(ValueError, match=r"score\.py: no other in this file"):
        authors_names(tmp_path / "clone" / "score.py", ["other"], {})


def test_a_page_is_not_written_without_the_authors_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--authors", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 2
    assert "is not written" in capsys.readouterr().err and not (tmp_path / "page.md").exists()
