"""From samples to numbers.

Promise under test: the numbers are those of their definitions, recomputed here on their own; failures are counted and
never become a score; the order in which samples were finished, and how large a set is, change nothing.
"""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from soul import tasks
from soul.evaluate.numbers.results import summarise
from soul.evaluate.numbers.set_result import RowResult
from soul.record import BadRecord
from soul.suites import soul_v1
from soul.task_types import Metric
from tests.soul.evaluate.finished_samples import TOM, numbered, sample, shuffled, usage

OUTCOMES = st.lists(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=4), min_size=1, max_size=6)


def of(samples, name=TOM):
    return summarise(samples, [name]).sets[name]


def lines(outcomes):
    return [sample(r, number, k) for number, row in enumerate(outcomes) for k, r in enumerate(row)]


@given(OUTCOMES)
def test_mean_and_bounds_are_row_means_averaged(outcomes):
    found = of(shuffled(lines(outcomes)))
    rows = [[r for r in row if r is not None] for row in outcomes]
    means = [sum(row) / len(row) for row in rows if row]
    assert found.samples == sum(map(len, outcomes))
    assert found.invalid == sum(r is None for row in outcomes for r in row)
    if not means:
        assert found.mean is None and found.interval is None and found.bounds == (0.0, 1.0)
        return
    assert math.isclose(found.mean, sum(means) / len(means), abs_tol=1e-12)
    for bound, value in zip(found.bounds, (0.0, 1.0), strict=True):
        filled = [sum(value if r is None else r for r in row) / len(row) for row in outcomes]
        assert math.isclose(bound, sum(filled) / len(filled), abs_tol=1e-12)
    assert found.bounds[0] - 1e-12 <= found.mean <= found.bounds[1] + 1e-12


def test_bounds_are_those_of_the_headlines_own_range():
    headline = tasks.load("sotopia").headline
    assert headline.low < 0  # not 0: a failure that counted as 0 would be no worst case
    found = of(numbered([0.3, None], "sotopia", metrics={"overall": 0.3}), "sotopia")
    assert found.bounds == pytest.approx(((0.3 + headline.low) / 2, (0.3 + headline.high) / 2))
    assert found.mean == pytest.approx(0.3)


def test_failures_are_counted_by_cause_and_silence_is_valid():
    failures = [sample(None, n, cause=c) for n, c in enumerate(["timeout", "refusal", "timeout"])]
    found = of([*failures, sample(0.0, 3, contentless=True), sample(1.0, 4)])
    assert found.causes == {"timeout": 2, "refusal": 1}
    assert sum(found.causes.values()) == found.invalid
    assert found.contentless == 1 and found.mean == 0.5


def test_further_metrics_come_from_the_task_itself(monkeypatch):
    summarize = lambda task, scored: {"reward": 0.0, "accuracy": 0.0, "share": float(len(scored))}  # noqa: E731
    monkeypatch.setattr(type(tasks.load(TOM)), "summarize", summarize)
    assert of(numbered([1.0, 0.0, None])).metrics == {"share": 2.0}  # the headline is the mean, and said there


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.booleans())
def test_best_at_k_is_the_mean_over_all_choices_of_k(rewards, higher):
    metric, best = Metric("m", higher_is_better=higher), max if higher else min
    row = RowResult(0, 0, tuple(rewards), 0)
    for k in range(1, len(rewards) + 1):
        choices = [best(choice) for choice in itertools.combinations(rewards, k)]
        assert math.isclose(row.best_at(k, metric), sum(choices) / len(choices), abs_tol=1e-12)


def test_several_samples_a_row():
    found = of(lines([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, None, None]]))
    assert found.mean == pytest.approx((0.25 + 0 + 1) / 3)  # rows first: not 3 / 10
    assert found.best[1] == (pytest.approx(found.mean), 3)
    assert found.best[2] == (pytest.approx((0.5 + 0 + 1) / 3), 3)
    assert found.best[4] == (pytest.approx(0.5), 2)  # the third row has only two valid samples
    saved = found.to_json()
    assert saved["best"]["4"] == {"mean": 0.5, "rows": 2}
    assert [(row["number"], row["row"], row["mean"], row["best"]) for row in saved["per_row"]] == [
        (0, 1000, 0.25, 1.0),
        (1, 1001, 0.0, 0.0),
        (2, 1002, 1.0, 1.0),
    ]
    assert "best" not in of(numbered([1.0, 0.0])).to_json()


def test_the_interval_is_over_rows_and_not_over_samples():
    once = of(numbered([0.0, 1.0] * 10))
    often = of([sample(float(n % 2), n, k) for n in range(20) for k in range(8)])
    assert often.interval == once.interval  # eight equal samples of a row say nothing more about other rows


def test_the_macro_average_is_of_sets_and_never_pooled():
    found = summarise(numbered([1.0] * 99 + [0.0]) + numbered([0.0, 0.5], "paratomi"), [TOM, "paratomi", "mistakes"])
    macro = found.macro
    assert macro.mean == pytest.approx((0.99 + 0.25) / 2)
    assert (macro.sets, macro.of) == (2, 3)  # the empty set is in no average, and it shows
    assert macro.interval is None  # a set of two rows has none
    wider = summarise(numbered([1.0] * 99 + [0.0]) + numbered([0.0, 0.5, 0.2, 0.1, 0.4], "paratomi"), [TOM, "paratomi"])
    variances = [wider.sets[name].estimate.variance for name in (TOM, "paratomi")]
    low, high = wider.macro.interval
    half = t.ppf(0.975, 4) * math.sqrt(sum(variances)) / 2  # nearly all of it comes from the five rows
    assert (high - low) / 2 == pytest.approx(half, rel=0.05)
    assert macro.bounds == pytest.approx((macro.mean, macro.mean))
    assert found.paper is None and found.alignx is None


def test_averages_of_the_papers_ten_and_of_alignx_need_all_their_sets():
    samples, want = [], {}
    for place, name in enumerate(soul_v1.SETS):
        want[name] = place / 100
        samples += [sample(want[name], n, of=name, task=soul_v1.SETS[name].task) for n in range(3)]
    found = summarise(samples, list(soul_v1.SETS))
    joint = {name for name, result in found.sets.items() if result.joint}  # their score is no mean of rewards
    assert joint == {"userllm"} and all(found.sets[name].mean == pytest.approx(want[name]) for name in {*want} - joint)
    want["userllm"] = found.sets["userllm"].mean
    assert found.paper.mean == pytest.approx(sum(want[name] for name in soul_v1.PAPER) / 10)
    assert found.alignx.mean == pytest.approx(sum(want[name] for name in soul_v1.ALIGNX) / 5)
    assert len(soul_v1.ALIGNX) == 5 and (found.macro.sets, found.macro.of) == (27, 27)
    assert set(found.to_json()["averages"]) == {"macro", "paper", "alignx"}
    without = [line for line in samples if line.set not in ("coser", "alignx_ugc")]
    less = summarise(without, list(soul_v1.SETS))
    assert less.paper is None and less.alignx is None and less.macro.sets == 25


def test_cost_tokens_and_seconds_are_those_of_all_samples_the_failed_too():
    usages = {"policy": usage(0.5, 100, 20), "judge": usage(0.25, 30, 10), "partner": usage(0.125, 7, 3, unpriced=1)}
    found = of([sample(1.0, 0, usages=usages), sample(None, 1, usages=usages), sample(0.0, 2, usages={})])
    assert (found.policy.cost_usd, found.policy.prompt_tokens, found.policy.completion_tokens) == (1.0, 200, 40)
    assert (found.judges.cost_usd, found.judges.prompt_tokens, found.judges.unpriced) == (0.75, 74, 2)
    assert found.seconds == {"play": 4.0, "judge": 1.0}
    saved = json.loads(json.dumps(found.to_json()))
    assert saved["usage"]["policy"]["cost_usd"] == 1.0 and saved["usage"]["judges"]["calls"] == 4


def test_an_empty_set_has_no_numbers_and_a_run_may_have_none():
    found = of([])
    assert (found.mean, found.interval, found.bounds, found.samples, found.metrics) == (None, None, None, 0, {})
    assert found.task == TOM and found.headline.name == "accuracy"
    json.dumps(found.to_json(), allow_nan=False)
    assert summarise([], []).macro.mean is None


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        (numbered([1.0], "coser"), "the set 'coser', which is not among the requested: hitom"),
        ([*numbered([1.0]), sample(None)], "hitom: row number 0, sample 0 occurs twice"),
        ([sample(0.5), sample(1e9, 1)], "row 1, sample 0: the reward is 1000000000.0, outside accuracy's range 0 to 1"),
        ([sample(1.0), sample(1.0, 1, task="fantom")], "hitom: its samples name two tasks, 'hitom' and 'fantom'"),
    ],
)
def test_samples_that_cannot_be_of_this_run_are_refused(samples, error):
    with pytest.raises((ValueError, BadRecord), match=error):
        summarise(samples, [TOM])
