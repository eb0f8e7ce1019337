"""The rows that share a micro-batch: those that begin alike, so that their beginning is computed once.

verl's engine cuts a mini-batch by the tokens of its rows. Here the cost is that of the tree, and a micro-batch is a run
of rows in sorted order, in which the rows of a group are neighbours. As in verl, all ranks cut the same number of
micro-batches, because each of them is a collective operation.
"""

from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.utils import prepare_micro_batches as by_rows

from ditto.batch.jagged import row_lengths
from ditto.model.prefix_tree.packing import wants_tree
from ditto.model.prefix_tree.tree import SortedRows, sort_rows


def prepare_micro_batches(data: TensorDict, dp_group: Any = None, **options: Any) -> Any:
    """verl's function of this name, which its engine calls; a batch that is computed as trees is cut by their cost.

    Returns:
        The micro-batches, and for each the numbers of its rows in the batch.

    Raises:
        ValueError: a row is longer than a micro-batch may be.
    """
    if not wants_tree(data):
        return by_rows(data, dp_group, **options)
    ids, budget = data["input_ids"], int(data["max_token_len_per_gpu"])
    known = sort_rows([row.numpy() for row in ids.values().cpu().split(row_lengths(ids).tolist())])
    longest, count = _over_ranks([int(known.lengths.max()), len(runs_within(known, budget))], dp_group)
    if longest > budget:  # every rank raises, and none waits for another
        raise ValueError(f"A row has {longest} tokens, but a micro-batch may have {budget} (max_token_len_per_gpu)")
    indices = [known.order[first:end] for first, end in even_runs(known, count, budget)]
    return [tu.index_select_tensor_dict(data, rows) for rows in indices], indices


def install() -> None:
    """Let verl's FSDP engine cut its micro-batches with `prepare_micro_batches`. Calling it again changes nothing."""
    transformer_impl.prepare_micro_batches = prepare_micro_batches


def runs_within(known: SortedRows, budget: int) -> list[tuple[int, int]]:
    """The fewest runs of neighbours whose trees have about `budget` tokens at most (or one row), as (first, end).

    A tree has a few tokens more: it shares no beginning that is shorter than `tree.SHORTEST`.
    """
    runs, first, cost = [], 0, int(known.lengths[0])
    for row in range(1, len(known.order)):
        own = int(known.lengths[row])
        more = own - int(known.shared[row])
        if cost + more > budget:
            runs.append((first, row))
            first, cost = row, own
        else:
            cost += more
    return [*runs, (first, len(known.order))]


def even_runs(known: SortedRows, count: int, budget: int) -> list[tuple[int, int]]:
    """Exactly `count` runs whose largest tree is as small as possible; `count` is at least what `budget` needs."""
    low, high = int(known.lengths.max()), budget
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(runs_within(known, middle)) <= count else (middle + 1, high)
    runs = runs_within(known, high)
    while len(runs) < count:  # another rank has more to do: divide what costs the most
        first, end = max((run for run in runs if run[1] - run[0] > 1), key=lambda run: known.cost(*run))
        cut = min(range(first + 1, end), key=lambda row: max(known.cost(first, row), known.cost(row, end)))
        place = runs.index((first, end))
        runs[place : place + 1] = [(first, cut), (cut, end)]
    return runs


def _over_ranks(numbers: list[int], group: Any) -> list[int]:
    """The largest value of each number over the ranks."""
    if group is None or not torch.distributed.is_initialized():
        return numbers
    largest = torch.tensor(numbers, device=get_device_name())
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)
    return [int(number) for number in largest]
