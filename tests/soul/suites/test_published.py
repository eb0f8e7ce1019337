"""The published numbers.

Promise under test: every number is the one that its source prints, each set is compared with the right row, and a group
of sets never lends its number to a single set.
"""

import re
from pathlib import Path

import pytest

from soul.suites import soul_v1
from soul.suites.published import column, models, rows

SPEC = Path(__file__).parents[4] / "shared" / "spec"
sources = pytest.mark.skipif(not SPEC.is_dir(), reason=f"the sources are not here ({SPEC})")
CARD_LINE = re.compile(r"^(CONV|SS|COG|ROLE|EVAL) (\S+)((?: \d+\.\d)+)$", re.MULTILINE)


@sources
def test_the_card_says_so():
    text = (SPEC / "model-card.txt").read_text(encoding="utf-8")
    head = next(line for line in text.splitlines() if line.startswith("Dim Benchmark "))
    assert head == f"Dim Benchmark {' '.join(models('card'))}".replace("Others", "Others*")
    printed = CARD_LINE.findall(text)
    assert [(row.dimension, row.name) for row in rows("card")] == [(dimension, name) for dimension, name, _ in printed]
    for row, (_, _, numbers) in zip(rows("card"), printed, strict=True):
        assert [f"{column('card', model).scores[row.key]:.1f}" for model in models("card")] == numbers.split(), row


@sources
def test_the_paper_says_so():
    text = (SPEC / "paper.txt").read_text(encoding="utf-8")
    start = text.index("| Benchmark | GPT-5.4 | GPT-5 nano |")
    head, *printed = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text[start:].splitlines()[:12]]
    assert head[1:] == list(models("paper"))
    assert [line[0] for line in printed] == [*(row.name for row in rows("paper")), "Average"]
    for row, (_, *numbers) in zip(rows("paper"), printed[:-1], strict=True):
        assert [f"{column('paper', model).scores[row.key] / 100:.3f}" for model in models("paper")] == numbers, row
    averages = [column("paper", model).macro(soul_v1.PAPER) for model in models("paper")]
    assert [f"{average / 100:.3f}" for average in averages] == printed[-1][1:]


def test_the_card_covers_all_sets_once_and_the_paper_its_ten():
    covered = [name for row in rows("card") for name in row.sets]
    assert len(rows("card")) == 23 and len(covered) == len(set(covered)) == 27
    assert set(covered) == set(soul_v1.SETS)
    assert sorted(row.key for row in rows("paper")) == sorted(soul_v1.PAPER)
    assert all(row.sets == (row.key,) for row in rows("paper"))


def test_an_average_stands_only_for_sets_that_all_have_a_number():
    ditto, paper = column("card", "Ditto-8B"), column("paper", "Ditto 8B")
    alignx, singles = ditto.scores["alignx"], [ditto.scores[row.key] for row in rows("card") if row.key != "alignx"]
    assert ditto.macro(soul_v1.SETS) == pytest.approx((sum(singles) + 5 * alignx) / 27)
    assert ditto.macro(["hitom", "fantom"]) == pytest.approx((ditto.scores["hitom"] + ditto.scores["fantom"]) / 2)
    assert paper.macro(["hitom", "socsci210"]) is None
    assert ditto.macro([]) is None and ditto.macro(["my_task"]) is None
