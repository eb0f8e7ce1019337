"""The words that the viewer marks as changed, computed by script/diff.js in Chromium."""

import random
from pathlib import Path

import pytest

import soul.pages
from tests.soul.pages.browser_pages import needs_a_browser

pytestmark = needs_a_browser
SCRIPT = (Path(soul.pages.__file__).parent / "script" / "diff.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def changes(browser):
    """changesBetween of several pairs of texts."""
    page = browser.new_page()
    yield lambda pairs: page.evaluate(
        f"(pairs) => {{ {SCRIPT}; return pairs.map((p) => changesBetween(...p)); }}", pairs
    )
    page.close()


def longest_common(a, b):
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for one in a:
        before = row[:]
        for k, other in enumerate(b, start=1):
            row[k] = before[k - 1] + 1 if one == other else max(before[k], row[k - 1])
    return row[-1]


def kept(pieces):
    return "".join(piece["text"] for piece in pieces if not piece["changed"])


def test_it_marks_as_few_words_as_possible_and_loses_no_text(changes):
    dice = random.Random(1)
    pairs = [
        ["".join(dice.choices("!?.", k=dice.randrange(14))) for _ in range(2)] for _ in range(400)
    ]  # a sign is a word
    for (before, after), result in zip(pairs, changes(pairs), strict=True):
        for text, pieces in ((before, result["before"]), (after, result["after"])):
            assert "".join(piece["text"] for piece in pieces) == text
        assert kept(result["before"]) == kept(result["after"])
        assert len(kept(result["before"])) == longest_common(before, after)
