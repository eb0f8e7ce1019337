"""docs/sizing.md says what the code says."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_the_one_that_the_code_makes() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "sizing.py"))["page"]()
    assert (ROOT / "docs" / "sizing.md").read_text(encoding="utf-8") == page, "run: python docs/sizing.py"
