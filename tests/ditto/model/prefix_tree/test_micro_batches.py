"""Rows that begin alike share a micro-batch, and no tree is larger than the budget."""

from collections import Counter

import numpy as np
import pytest
from verl.utils import tensordict_utils as tu
from verl.workers.engine.fsdp import transformer_impl

from ditto.model import install  # noqa: F401  (installs what is tested)
from ditto.model.prefix_tree.micro_batches import even_runs, prepare_micro_batches, runs_within
from ditto.model.prefix_tree.tree import grow, sort_rows
from tests.ditto.model.prefix_tree.groups import columns, rows_of_groups

ROWS = rows_of_groups(groups=4, drafts=4)


def sorted_rows():
    return sort_rows([np.array(prompt + response) for prompt, response in ROWS])


def test_verls_engine_calls_it():
    assert transformer_impl.prepare_micro_batches is prepare_micro_batches


@pytest.mark.parametrize("budget", [45, 90, 200, 10_000])
def test_every_row_is_in_one_micro_batch_within_the_budget(budget):
    data = columns(ROWS)
    tu.assign_non_tensor(data, prefix_tree=True, max_token_len_per_gpu=budget)
    micro_batches, indices = prepare_micro_batches(data)
    assert Counter(row for rows in indices for row in rows) == Counter(range(len(ROWS)))
    ids = data["input_ids"].unbind()
    for micro_batch, rows in zip(micro_batches, indices, strict=True):
        assert [row.tolist() for row in micro_batch["input_ids"].unbind()] == [ids[row].tolist() for row in rows]
        assert tu.get_non_tensor_data(micro_batch, "prefix_tree", False)
        known = sort_rows([ids[row].numpy() for row in rows])
        assert known.cost(0, len(rows)) <= budget
    if budget == 10_000:
        assert len(indices) == 1
    elif budget == 200:  # the rows of a group are neighbours, so prompts are hardly repeated
        unique = len(grow([row.numpy() for row in ids]).source)
        assert sum(len(grow([ids[row].numpy() for row in rows]).source) for rows in indices) < 1.3 * unique


def test_without_trees_verl_cuts():
    data = columns(ROWS)
    tu.assign_non_tensor(data, max_token_len_per_gpu=90)
    _, indices = prepare_micro_batches(data)
    assert all(
        sum(len(prompt) + len(response) for prompt, response in (ROWS[i] for i in rows)) <= 90 for rows in indices
    )


def test_a_row_beyond_the_budget_is_an_error():
    data = columns(ROWS)
    tu.assign_non_tensor(data, prefix_tree=True, max_token_len_per_gpu=20)
    with pytest.raises(ValueError, match="a micro-batch may have 20 "):
        prepare_micro_batches(data)


@pytest.mark.parametrize("more", [0, 1, 5, 100])
def test_another_rank_may_need_more_micro_batches(more):
    """All ranks cut the same number; each run keeps a row, and their costs are even."""
    known = sorted_rows()
    fewest = len(runs_within(known, 150))
    count = min(fewest + more, len(ROWS))
    runs = even_runs(known, count, 150)
    assert len(runs) == count and runs[0][0] == 0 and runs[-1][1] == len(ROWS)
    assert all(first < end for first, end in runs)
    assert all(end == first for (_, end), (first, _) in zip(runs[:-1], runs[1:], strict=True))
    assert max(known.cost(*run) for run in runs) <= 150
