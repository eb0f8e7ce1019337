"""Several models in one table.

Promise under test: the card's order; averages over the sets that all models have, and they say so; failures show; both
forms show the same cells.
"""

from io import StringIO

import pytest
from rich.console import Console

from soul.evaluate.numbers.results import summarise
from soul.evaluate.tables.side_by_side import models_table
from soul.suites import soul_v1
from tests.soul.evaluate.finished_samples import TOM, numbered, sample

BASE = summarise(numbered([1.0, 0.0, 0.0, 0.0]) + numbered([1.0, 1.0], "paratomi"), [TOM, "paratomi"])
BETTER = summarise(numbered([1.0, 1.0, 0.0, None]) + numbered([1.0, 0.0], "paratomi"), [TOM, "paratomi"])
OTHERS = summarise(numbered([1.0, 1.0, 1.0, 1.0]) + numbered([None, None], "mistakes"), [TOM, "mistakes"])


def everything(value):
    samples = [sample(value, n, of=name, task=of.task) for name, of in soul_v1.SETS.items() for n in range(2)]
    return summarise(samples, list(soul_v1.SETS))


def cells(models):
    """Title -> number of samples and scores."""
    return {title: texts for title, *texts in models_table(models).lines}


def test_a_line_a_set_and_a_column_a_model():
    found = cells({"base": BASE, "better": BETTER})
    assert list(found) == [TOM, "paratomi", "macro average, 2 sets"]
    assert found[TOM] == ["4", "25.0 [-]", "66.7 [-], 25.0 % invalid"]
    assert found["paratomi"][1] == "100.0 [-]"
    macro = found["macro average, 2 sets"]
    assert [cell.split(" ")[0] for cell in macro[1:]] == ["62.5", "58.3"]  # sets averaged as sets
    assert macro[2].endswith("16.7 % invalid")


def test_averages_are_over_the_sets_of_all_models_and_say_so():
    """A set in which all failed has no number, so it is in no average."""
    found = cells({"base": BASE, "others": OTHERS})
    assert found["paratomi"] == ["2 / -", "100.0 [-]", ""]
    assert found["mistakes"] == ["- / 2", "", "-, 100.0 % invalid"]
    assert found["macro average, 1 of 3 sets, of all models"][1:] == ["25.0 [-]", "100.0 [-]"]


@pytest.mark.parametrize(
    ("width", "left_out", "first", "scores"),
    [
        (100, "the 95 % intervals", 3, ["0.0", "12.5", "25.0", "37.5", "50.0"]),
        (60, "the 95 % intervals, n, checkpoint_4 and checkpoint_3", 2, ["0.0", "12.5", "25.0"]),
    ],
)
def test_a_narrow_terminal_leaves_out_intervals_and_then_models(width, left_out, first, scores):
    text = drawn({f"checkpoint_{n}": everything(n / 8) for n in range(5)}, width)
    assert max(map(len, text.splitlines())) <= width
    assert f"Too narrow for {left_out}: the Markdown table has them." in " ".join(text.split())
    row = next(line for line in text.splitlines() if f" {TOM} " in line)
    assert [cell.strip() for cell in row.split("│")[first:-1]] == scores


def drawn(models, width=400):
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(models_table(models, width=width).rich("Models"))
    return console.file.getvalue()
