"""Finished evaluations, row by row.

Promise under test: only what is the same row is paired; what is not paired is counted and said; differences, intervals,
wins and p-values are those of their definitions, computed here anew; scores of different judges are called so and enter
no average; an average over sets is never pooled.
"""

from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from soul import tasks
from soul.compare.report import markdown, table
from soul.compare.runs import compare_runs
from soul.task_types import Metric
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM, numbered, sample, shuffled, usage

JUDGE = {"model": "judge-1", "base_url": "http://127.0.0.1:1/v1", "reasoning_effort": None, "temperature": None}
SETTINGS = {
    "roles": {role: JUDGE for role in ("judge", "feedback", "partner", "environment")},
    "jury": [],
    "by_task": {},
    "tasks": {},
}
ALONE = {"policy": usage(0.5, 100, 20)}  # of a task that scores by rule


def run_folder(path, lines, model="model", n=1, **changes):
    """A finished run's folder, as `soul.evaluate` leaves it."""
    return finished_run(path, lines, n=n, **{"policy": {"model": model}, **SETTINGS, **changes}).folder


def two(tmp_path, base, other, **of_other):
    """The comparison of two runs of these lines."""
    a = run_folder(tmp_path / "a", base, "model-a")
    b = run_folder(tmp_path / "b", other, "model-b", **of_other)
    (found,) = compare_runs([a, b]).comparisons
    return found


def by_rule(rewards, of=TOM, **other):
    return numbered(rewards, of, usages=ALONE, **other)


REWARDS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1
)


@given(REWARDS)
def test_the_numbers_are_those_of_their_definitions(tmp_path_factory, rewards):
    base, other = zip(*rewards, strict=True)
    found = two(tmp_path_factory.mktemp("runs"), by_rule(base), shuffled(by_rule(other))).sets[TOM]
    assert len(found.rows) == len(rewards) and found.comparable
    assert found.means == pytest.approx((np.mean(base), np.mean(other)), abs=1e-12)
    assert found.estimate.mean == pytest.approx(np.mean(np.subtract(other, base)), abs=1e-12)
    wins, losses = sum(b > a for a, b in rewards), sum(b < a for a, b in rewards)
    assert found.tally == (wins, len(rewards) - wins - losses, losses)
    assert found.estimate.interval is None or len(rewards) >= 5


def test_several_samples_of_a_row_are_its_mean_and_n_may_differ(tmp_path):
    base = [sample(r, 0, k, usages=ALONE) for k, r in enumerate([1.0, 0.0, 0.0, None])]
    found = two(tmp_path, base, by_rule([1.0]), n=4).sets[TOM]
    assert found.means == (pytest.approx(1 / 3), 1.0)
    assert found.notes == ["1 samples of paired rows have no verdict"]


def test_what_cannot_be_paired_is_counted(tmp_path):
    base = by_rule([1.0, 1.0, None, 1.0, None, 0.0])
    other = by_rule([0.0, None, 1.0, 1.0, None])
    other[3].record = {**other[3].record, "question": "Where is it now?"}
    found = two(tmp_path, base, [*other, sample(1.0, 9, usages=ALONE)])
    assert [row.id for row in found.sets[TOM].rows] == ["0"]
    counted = "1 only in baseline, 1 only in other, 1 other record, 2 invalid in baseline, 2 invalid in other"
    assert f"hitom: rows that are not paired: {counted}." in said(found)


def judged(rewards):
    asked = {"policy": usage(), "judge": usage(), "partner": usage()}
    return numbered(rewards, "sotopia", metrics={"overall": 0.1}, usages=asked)


OTHER = {**JUDGE, "model": "judge-2"}
ROLES = SETTINGS["roles"]
OTHER_PROTOCOLS = {
    "judge": ({"roles": {**ROLES, "judge": OTHER}}, "judge: judge-1 and judge-2"),
    "partner": ({"roles": {**ROLES, "partner": OTHER}}, "partner: judge-1 and judge-2"),
    "effort": ({"roles": {**ROLES, "judge": {**JUDGE, "reasoning_effort": "low"}}}, "reasoning_effort None and low"),
    "jury": ({"jury": [JUDGE, OTHER]}, "judge: judge-1 and judge-1 + judge-2"),
    "own judge": ({"by_task": {"sotopia": OTHER}}, "judge: judge-1 and judge-2"),
    "options": ({"tasks": {"sotopia": {"turns": 4}}}, "task options: {} and {'turns': 4}"),
}


@pytest.mark.parametrize("changes", OTHER_PROTOCOLS)
def test_scores_of_another_protocol_are_called_not_comparable_and_are_in_no_average(tmp_path, changes):
    settings, reason = OTHER_PROTOCOLS[changes]
    base, other = by_rule([1.0, 0.0]), by_rule([1.0, 1.0])
    found = two(tmp_path, judged([0.1, 0.2]) + base, judged([0.3, 0.3]) + other, **settings)
    assert not found.sets["sotopia"].comparable
    assert found.sets[TOM].comparable  # it scores by rule
    assert (found.macro.sets, found.macro.of) == (1, 2) and found.macro.difference == 0.5
    text = said(found)
    assert "NOT COMPARABLE in sotopia: " in text and reason in text
    assert found.adjusted["sotopia"] is None and found.adjusted[TOM] == found.sets[TOM].p_value
    assert "macro average, 1 of 2 sets" in text and "sotopia (!)" in text


def test_equal_rows_of_another_version_of_the_task_are_not_comparable(tmp_path):
    """Their scores may be on another scale, or by another prompt."""
    later = [line.model_copy(update={"stamp": f"{line.stamp}-later"}) for line in numbered([0.0, 1.0])]
    found = two(tmp_path, numbered([0.0, 1.0]), later)
    assert not found.sets[TOM].comparable and f"another version of {TOM}" in said(found)


def test_the_macro_average_is_of_sets_and_never_pooled(tmp_path):
    base = by_rule([0.0] * 40) + by_rule([1.0, 1.0], "paratomi")
    other = by_rule([0.0, 1.0] * 20) + by_rule([1.0, 0.0], "paratomi")
    found = two(tmp_path, base, other)
    assert found.macro.difference == pytest.approx((0.5 - 0.5) / 2)
    assert found.macro.interval is None  # two pairs of paratomi have none
    assert found.average([TOM]).interval == found.sets[TOM].estimate.interval
    alone = two(tmp_path / "x", base, [*by_rule([1.0] * 40), sample(None, 0, of="paratomi")])
    assert (alone.macro.sets, alone.macro.of) == (1, 2)


def test_lower_is_better_turns_wins_and_not_differences(tmp_path, monkeypatch):
    monkeypatch.setattr(type(tasks.load(TOM)), "headline", Metric("error", higher_is_better=False))
    found = two(tmp_path, by_rule([0.0, 1.0, 1.0]), by_rule([1.0, 0.0, 0.5])).sets[TOM]
    assert found.tally == (2, 0, 1) and found.estimate.mean == pytest.approx(-0.5 / 3) and found.effect > 0


def said(found):
    """All that the file says; the terminal shows the same cells."""
    console = Console(file=StringIO(), width=1000, color_system=None)
    shown = table([found])
    console.print(shown.rich("title"))
    terminal = " ".join(console.file.getvalue().split())
    assert all(" ".join(cell.plain.split()) in terminal for line in shown.cells for cell in line)
    return markdown([found], shown).replace("`", "").replace("&lt;", "<")
