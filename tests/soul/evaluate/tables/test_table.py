"""The table of a run.

Promise under test: the card's order and scale; failures are visible; an average says how many sets it rests on and has
no published number beside it that rests on others; names are text and never markup.
"""

from io import StringIO

import pytest
from rich.console import Console

from soul import tasks
from soul.evaluate.numbers.results import summarise
from soul.evaluate.tables.run_table import OWN, SHOWN, invalid_share, lines, markdown, run_table, titles
from soul.suites import soul_v1
from soul.suites.published import rows
from soul.task import Task
from soul.task_types import Metric, Row
from tests.soul.evaluate.finished_samples import TOM, numbered, sample, shuffled


def everything(value=0.5, **other):
    samples = [sample(value, n, of=name, task=of.task, **other) for name, of in soul_v1.SETS.items() for n in range(3)]
    return summarise(samples, shuffled(soul_v1.SETS))


def drawn(results, width=400):
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(run_table(results, width=width).rich("Results"))
    return console.file.getvalue()


def test_sets_stand_in_the_cards_order():
    found = [line.cells[0] for line in lines(everything())]
    want = [
        name for row in rows("card") for name in (*row.sets, *(["alignx, mean of 5"] if row.key == "alignx" else []))
    ]
    assert found == [*want, "macro average, 27 sets", "macro average, paper's 10"]
    dimensions = [line.dimension for line in lines(everything())]
    assert list(dict.fromkeys(dimensions)) == ["CONV", "SS", "COG", "ROLE", "EVAL", "average"]
    assert dimensions.count("EVAL") == 5 + 1 + 4


def test_scores_are_on_the_cards_scale():
    results = summarise(numbered([0.458] * 3, "sotopia", metrics={"overall": 0.458}), ["sotopia"])
    (line,) = lines(results)  # one set needs no average
    assert line.cells == ("sotopia", "45.8 [-]", "3", "0 %", "$2.25")
    assert line.published == ("27.7", "45.8", "31.9", "27.7", "47.0")


def test_a_set_without_published_numbers_has_none(monkeypatch):
    class Mine(Task[Row]):
        name, row_type, headline = "mine", Row, Metric("score")
        play = judge = feedback = prompt = None

    Mine.__abstractmethods__ = frozenset()
    loaded = tasks.load
    monkeypatch.setattr(tasks, "load", lambda name: Mine() if name == "[b]mi|ne" else loaded(name))
    results = summarise(numbered([1.0, 0.0], "[b]mi|ne") + numbered([1.0, 1.0]), ["[b]mi|ne", TOM])
    first, second, macro = lines(results)
    assert (first.cells[0], second.cells[0], second.dimension) == (TOM, "[b]mi|ne", "")
    assert set(second.published) == set(macro.published) == {""}
    assert "[b]mi|ne" in drawn(results) and r"| [b]mi\|ne |" in markdown(results)


def test_rows_that_stand_in_for_the_papers_have_no_published_number_beside_them():
    samples = [sample(0.5, n, of=name, task=of.task) for name, of in soul_v1.SETS.items() for n in range(2)]
    why = {"social_r1": "ToMBench stands in for ToMBench-Hard", "alignx_pair": "P-Soups"}
    results = summarise(samples, list(soul_v1.SETS), stand_ins=why)
    marked = {line.cells[0] for line in lines(results) if line.cells[1].endswith(" *")}
    assert marked == {*why, "alignx, mean of 5", "macro average, 27 sets"}
    for line in lines(results):
        assert (set(line.published) == {""}) is (line.cells[0] in marked or line.cells[0] in soul_v1.ALIGNX)
    for text in (markdown(results), " ".join(drawn(results).split())):
        assert "Other rows than the paper's: social_r1 (ToMBench stands in for ToMBench-Hard)" in text
    assert results.to_json()["sets"]["social_r1"]["stands_in"] == why["social_r1"]
    assert "stands_in" not in results.to_json()["sets"]["hitom"]


def test_a_set_that_an_option_scores_otherwise_has_no_published_number_beside_it():
    tasks.configure({"sotopia": {"reward": "weighted"}})
    try:
        (line,) = lines(summarise(numbered([0.4] * 3, "sotopia"), ["sotopia"]))
    finally:
        tasks.configure({})
    assert line.cells[1].startswith("40.0") and set(line.published) == {""}


def test_failures_and_their_effect_are_shown():
    (line,) = lines(summarise(numbered([1.0, 1.0, 0.0, None]), [TOM]))
    assert line.cells[1].startswith("66.7 [") and line.cells[2:4] == ("4", "25.0 % (50.0 to 75.0)")
    (line,) = lines(summarise(numbered([None, None]), [TOM]))
    assert line.cells[:4] == (TOM, "-", "2", "100.0 % (0.0 to 100.0)")
    (line,) = lines(summarise([], [TOM]))
    assert line.cells == (TOM, "-", "0", "-", "$0.00")
    assert invalid_share(1, 5687, None) == "< 0.1 %"  # never rounded away


def test_averages_have_published_numbers_of_the_same_sets_only():
    *_, macro, paper = lines(everything())
    card = [c.macro(soul_v1.SETS) for c in SHOWN if c.source == "card"]
    assert macro.published == (*(f"{value:.1f}" for value in card), "", "")
    assert paper.published[3:] == ("53.3", "72.6")  # as the paper prints them
    alignx = next(line for line in lines(everything()) if line.cells[0] == "alignx, mean of 5")
    assert alignx.published == ("68.6", "67.4", "71.2", "", "") and alignx.cells[2] == "15"
    assert next(line for line in lines(everything()) if line.cells[0] == "alignx_ugc").published == ("",) * 5


def test_an_average_of_fewer_sets_says_so_and_has_no_published_number():
    results = summarise(numbered([1.0, 0.0]) + numbered([None], "paratomi"), [TOM, "paratomi"])
    *_, macro = lines(results)
    assert macro.cells[0] == "macro average, 1 of 2 sets" and macro.cells[3] == "33.3 % (25.0 to 75.0)"
    assert set(macro.published) == {""}


def test_several_samples_a_row_have_a_column_for_the_best():
    twice = [sample(float(k == n == 0), n, k, answer=f"<answer>{'AB'[k]}</answer>") for n in range(2) for k in range(2)]
    results = summarise([*twice, *numbered([1.0, 1.0], "paratomi")], [TOM, "paratomi"])
    assert titles(results) == ("set", "score [95 %]", "best@2", *OWN[2:])
    first, second, macro = lines(results)
    assert first.cells[2:4] == ("50.0", "4 (2 rows)")
    assert second.cells[2] == macro.cells[2] == "-"  # no row of it has two


@pytest.fixture(scope="module")
def whole():
    sets = soul_v1.SETS.items()
    samples = [sample(0.1 + n % 2 / 5, n, of=name, task=of.task) for name, of in sets for n in range(10)]
    return summarise([*samples, sample(None, 10), sample(None, 11)], list(soul_v1.SETS))


@pytest.mark.parametrize(
    ("width", "left_out", "kept"),
    [
        (400, "", "1234"),
        (150, "", "1234"),
        (120, "the published numbers", "1234"),
        (80, "the published numbers and bounds", "1234"),
        (60, "the published numbers, bounds and cost", "123"),
        (55, "the published numbers, bounds, cost and n", "13"),
    ],
)
def test_a_narrow_terminal_leaves_columns_out_and_wraps_no_number(whole, width, left_out, kept):
    text = drawn(whole, width)
    assert max(map(len, text.splitlines())) <= width and "\u2026" not in text
    assert text.count("(card)") + text.count("(paper)") == (0 if left_out else 5)
    note = f"Too narrow for {left_out}: table.md and the report have them."
    assert (note in " ".join(text.split())) is ("Too narrow" in text) is bool(left_out)
    rows = [[cell.strip() for cell in row.split("│")[2:-1]] for row in text.splitlines() if "│" in row]
    for line, found in zip(lines(whole), filter(any, rows), strict=True):  # a name may go on in a row without numbers
        cells = [cell.partition(" (")[0] if "bounds" in left_out else cell for cell in line.cells]
        assert found[: len(kept)] == [cells[int(place)] for place in kept]
