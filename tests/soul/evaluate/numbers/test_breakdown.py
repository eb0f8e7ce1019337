"""The numbers of a set by group.

Promise under test: they are those of the group's rows alone, by the same formulas as a set's, computed here anew; a
failed sample is counted where it belongs; values stand in natural order; the order of the journal changes nothing.
"""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.evaluate.numbers.results import breakdown, natural
from soul.task_types import Metric
from tests.soul.evaluate.finished_samples import sample, shuffled

ACCURACY = Metric("accuracy")
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", "10"]),
        st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=12,
)


def of_rows(rows, kind="order"):
    return [
        sample(reward, number, k, groups={kind: value})
        for number, (value, rewards) in enumerate(rows)
        for k, reward in enumerate(rewards)
    ]


@given(ROWS)
def test_a_group_is_its_rows_alone(rows):
    found = breakdown(shuffled(of_rows(rows)), ACCURACY)["order"]
    assert [group["value"] for group in found] == sorted({value for value, _ in rows}, key=int)
    for group in found:
        mine = [rewards for value, rewards in rows if value == group["value"]]
        valid = [[r for r in rewards if r is not None] for rewards in mine]
        means = [sum(rewards) / len(rewards) for rewards in valid if rewards]
        assert (group["rows"], group["samples"]) == (len(mine), sum(map(len, mine)))
        assert group["invalid"] == sum(r is None for rewards in mine for r in rewards)
        assert group["mean"] == (pytest.approx(sum(means) / len(means), abs=1e-12) if means else None)
        filled = [[sum(v if r is None else r for r in rewards) / len(rewards) for rewards in mine] for v in (0.0, 1.0)]
        assert group["bounds"] == pytest.approx([statistics.fmean(rows) for rows in filled], abs=1e-12)
        assert group["interval"] is None or len(means) >= 5
    assert sum(group["rows"] for group in found) == len(rows)


def test_a_row_is_in_one_group_of_each_kind_and_may_be_in_none():
    lines = [
        sample(1.0, 0, groups={"order": "0", "deception": "yes"}),
        sample(0.0, 1, groups={"order": "1", "deception": "yes"}),
        sample(None, 2, groups={"order": "1"}),
        sample(0.5, 3, groups={}),
    ]
    found = breakdown(lines, ACCURACY)
    assert list(found) == ["order", "deception"]
    assert found["order"] == [
        dict(value="0", rows=1, samples=1, mean=1.0, interval=None, invalid=0, bounds=(1.0, 1.0)),
        dict(value="1", rows=2, samples=2, mean=0.0, interval=None, invalid=1, bounds=(0.0, 0.5)),
    ]
    assert found["deception"][0]["rows"] == 2 and len(found["deception"]) == 1


def test_numbers_are_ordered_as_numbers():
    assert sorted(["10", "2", "b 10", "b 9", "B", "a", "1.5", "0"], key=natural) == [
        *("0", "1.5", "2", "10", "a", "B", "b 9", "b 10"),
    ]
