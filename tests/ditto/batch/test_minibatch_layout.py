"""Which row goes into which mini-batch and onto which rank.

Promise under test: the number of optimizer updates per step does not depend on how many drafts were
refined; every rank and mini-batch gets equally many rows, each row exactly once, and a prompt stays in one mini-batch.
"""

import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from ditto.batch.minibatch_layout import (
    Layout,
    RowSize,
    assign_mini_batches,
    balance_by_length,
    balance_groups,
    build_layout,
    padded_rows,
)

pytestmark = pytest.mark.smoke


def in_turn(lengths: list[int], ranks: int) -> list[list[int]]:
    """A simple `balance`: equally many to each rank, sorted by length."""
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    return [order[rank::ranks] for rank in range(ranks)]


def laid_out(prompts: list[str], per_mini_batch: int, ranks: int) -> Layout:
    mini_batch = assign_mini_batches(prompts, per_mini_batch)
    rows, updates = padded_rows(mini_batch, ranks)
    return build_layout(mini_batch, list(range(1, rows * updates + 1)), ranks, rows, in_turn)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_ranks_get_equally_many_rows_and_about_as_even_work_as_the_best_partition(ranks: int) -> None:
    chance = random.Random(0)
    lengths = [int(chance.lognormvariate(7, 1)) for _ in range(384)]
    work = calculate_workload(torch.tensor(lengths))

    def longest(parts: list[list[int]]) -> float:
        assert sorted(i for part in parts for i in part) == list(range(384))
        assert {len(part) for part in parts} == {384 // ranks}
        return max(float(work[part].sum()) for part in parts)

    best = longest(
        get_seqlen_balanced_partitions(work, k_partitions=ranks, equal_size=True) if ranks > 1 else [[*range(384)]]
    )
    assert longest(balance_by_length(lengths, ranks)) <= 1.01 * best


PROMPTS = st.lists(st.integers(0, 9).map(str), min_size=1, max_size=40)


@settings(deadline=None, max_examples=200)
@given(PROMPTS, st.integers(1, 4), st.integers(1, 4))
def test_layout_properties(prompts: list[str], per_mini_batch: int, ranks: int) -> None:
    layout = laid_out(prompts, per_mini_batch, ranks)
    real, total = len(prompts), len(layout.order)
    per_rank, per_rank_and_update = total // ranks, layout.rows // ranks
    # Each row exactly once.
    assert sorted(layout.order) == list(range(total))
    # As many updates as the prompts ask for, all of one size that the ranks share equally.
    assert layout.updates == -(-len(set(prompts)) // per_mini_batch)
    assert total == layout.rows * layout.updates and layout.rows % ranks == 0
    # verl cuts the batch into one chunk per rank and each chunk into mini-batches, in order.
    cut: dict[int, list[int]] = {m: [] for m in range(layout.updates)}
    for rank in range(ranks):
        chunk = layout.order[rank * per_rank : (rank + 1) * per_rank]
        for m in range(layout.updates):
            members = chunk[m * per_rank_and_update : (m + 1) * per_rank_and_update]
            assert len(members) == per_rank_and_update
            cut[m] += members
    # What verl cuts is what the plan calls a mini-batch, and no prompt is in two of them.
    for m, members in cut.items():
        assert {layout.mini_batch[i] for i in members} == {m}
        assert len({prompts[i] for i in members if i < real}) <= per_mini_batch
    home = {prompts[i]: layout.mini_batch[i] for i in range(real)}
    assert all(layout.mini_batch[i] == home[prompts[i]] for i in range(real))
    # Padding only fills: the largest mini-batch is padded for the ranks alone.
    sizes = Counter(layout.mini_batch[i] for i in range(real))
    assert layout.rows - max(sizes.values()) < ranks
    assert all(sizes[m] > 0 for m in range(layout.updates))


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 900), st.integers(0, 300)).map(
            lambda row: RowSize(f"p{row[0]}" if row[0] else "", row[1], row[2])
        ),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 4),
)
@settings(deadline=None)
def test_groups_stay_together_where_they_fit(sizes: list[RowSize], ranks: int) -> None:
    sizes = [*sizes, *[RowSize("", 1, 1)] * (-len(sizes) % ranks)]
    parts = balance_groups(sizes, ranks)
    assert sorted(row for part in parts for row in part) == list(range(len(sizes)))
    assert {len(part) for part in parts} == {len(sizes) // ranks}
    on_ranks = Counter(group for part in parts for group in {sizes[row].group for row in part} - {""})
    assert sum(count - 1 for count in on_ranks.values()) <= ranks * (ranks - 1)


def test_whole_groups_are_balanced_by_what_their_trees_cost() -> None:
    """Four prompts on two ranks: the one of 10,000 tokens counts once, not for each of its rows."""
    contexts = {"a": 10_000, "b": 4_000, "c": 4_000, "d": 3_000}
    sizes = [RowSize(group, context, 100) for group, context in contexts.items() for _ in range(8)]
    parts = [sorted({sizes[row].group for row in part}) for part in balance_groups(sizes, 2)]
    assert sorted(parts) == [["a", "d"], ["b", "c"]]
