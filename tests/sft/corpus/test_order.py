"""The shuffle is one, loses nothing and repeats nothing, and needs no state."""

from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sft.corpus.order import Order, Part

ratios = st.sampled_from([Fraction(n) for n in ("1", "2", "3", "0.5", "1.5", "0.3", "2.7", "0.01")])
sizes = st.lists(st.tuples(st.integers(0, 60), ratios), min_size=1, max_size=5).filter(lambda s: any(n for n, _ in s))


def order_of(made: list[tuple[int, Fraction]], seed: int = 0) -> Order:
    """An order over parts of these sizes and ratios, numbered through."""
    first, parts = 0, []
    for count, ratio in made:
        parts.append(Part(first, count, ratio))
        first += count
    return Order(parts, seed)


@given(sizes, st.integers(0, 4), st.integers(0, 3))
def test_an_epoch_has_every_sequence_as_often_as_its_ratio_says(
    made: list[tuple[int, Fraction]], epoch: int, seed: int
) -> None:
    order = order_of(made, seed)
    found = Counter(order.at(np.arange(len(order)) + epoch * len(order)).tolist())
    for part in (Part(sum(n for n, _ in made[:i]), *made[i]) for i in range(len(made))):
        times = [found.pop(sequence, 0) for sequence in range(part.first, part.first + part.count)]
        if not times:
            continue
        assert set(times) <= {part.passes, part.passes + 1}
        wanted = round(float(part.ratio) * part.count, 9)
        assert sum(times) == len(part) and abs(sum(times) - wanted) < 1
        if part.ratio.denominator == 1:
            assert set(times) == {int(part.ratio)}
    assert not found


def test_half_a_source_is_another_half_in_the_next_epoch() -> None:
    order = order_of([(100, Fraction(1, 2))])
    first, second, third = (set(order.epoch_rows(epoch).tolist()) for epoch in range(3))
    assert len(first) == len(second) == 50
    assert not first & second and first == third
    assert order_of([(100, Fraction(1, 2))], seed=1).epoch_rows(0).tolist() != sorted(first)


@given(sizes, st.integers(1, 40), st.integers(0, 30), st.integers(0, 30))
def test_a_step_is_the_same_wherever_one_starts(
    made: list[tuple[int, Fraction]], size: int, start: int, more: int
) -> None:
    endless = np.concatenate([order_of(made).step(step, size) for step in range(start + more + 1)])
    at_once = order_of(made).at(np.arange((start + more + 1) * size))
    assert endless.tolist() == at_once.tolist()
    assert order_of(made).step(start, size).tolist() == at_once[start * size : (start + 1) * size].tolist()
