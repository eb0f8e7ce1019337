"""What belongs together when some rows are held back for validation."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from sft.distill.dataset import group_names, held_back
from sft.distill.sample import ExpertSample
from soul.task_types import GroupKey
from tests.sft.distill.test_distill_select import made


def with_keys(row: str, *keys: str) -> ExpertSample:
    return replace(made(0, "up", row), keys=tuple(("up", GroupKey("line", key)) for key in keys))


def test_rows_are_one_group_also_through_other_rows() -> None:
    samples = [
        *(with_keys("a", "x", "q"), with_keys("b", "q", "z"), with_keys("c", "z", "y"), with_keys("d", "y")),
        *(with_keys("e", "v", "w"), with_keys("f"), with_keys("g")),
    ]
    names = group_names(samples)
    assert len({names[row] for row in "abcd"}) == 1
    assert len(set(names.values())) == 4 and names["f"] == "f"
    for seed in range(10):
        Random(seed).shuffle(samples)
        assert group_names(samples) == names


def test_something_is_always_left_to_train() -> None:
    assert {len(held_back(["one book"], 0.5, seed)) for seed in range(20)} == {0}
    assert held_back(["one book"], 1, 0) == {"one book"}
    assert {len(held_back(["a", "b"], 0.5, seed)) for seed in range(20)} == {0, 1}
