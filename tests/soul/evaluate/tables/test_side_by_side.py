"""Several models in one table.

Promise under test: the card's order; averages over the sets that all models have, and they say so; failures show; both
forms show the same cells.
"""

from soul.evaluate.numbers.results import summarise
from soul.evaluate.tables.side_by_side import models_table
from tests.soul.evaluate.finished_samples import TOM, numbered

BASE = summarise(numbered([1.0, 0.0, 0.0, 0.0]) + numbered([1.0, 1.0], "paratomi"), [TOM, "paratomi"])
BETTER = summarise(numbered([1.0, 1.0, 0.0, None]) + numbered([1.0, 0.0], "paratomi"), [TOM, "paratomi"])
OTHERS = summarise(numbered([1.0, 1.0, 1.0, 1.0]) + numbered([None, None], "mistakes"), [TOM, "mistakes"])


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
