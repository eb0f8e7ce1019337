"""verl's policy loss, with sequence means over the sequences that count.

In the modes seq-mean-* verl divides by `global_batch_size`, one number for all mini-batches of a step: their rows, with
padding and failed sessions. The weights of the sequences would make up for that in the clipped loss, but the KL and
entropy terms have no weights: they came out at 0.8 to 1.0 of what was asked. So every row tells how many sequences its
mini-batch counts, and verl divides by that. A mini-batch in which every session failed counts none, and its loss is 0.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import ppo_loss

COUNTED = "counted_sequences"


def counted_loss(config: Any, model_output: Any, data: TensorDict, dp_group: Any = None) -> tuple[torch.Tensor, Any]:
    """A loss function for verl's `set_loss_fn`: `ppo_loss` over the sequences that count.

    Args:
        config: verl's ActorConfig.
        data: a micro-batch with the column COUNTED, the same number in every row of a mini-batch.
    """
    column = data[COUNTED]
    counted = int((column.values() if column.is_nested else column).flatten()[0])
    tu.assign_non_tensor(data, global_batch_size=max(counted, 1))
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    return (loss, metrics) if counted else (loss * 0.0, metrics)


def counted_column(counted: list[int]) -> torch.Tensor:
    """The column COUNTED: a jagged tensor of one int64 a row."""
    values = torch.tensor(counted, dtype=torch.int64)
    return torch.nested.nested_tensor_from_jagged(values, torch.arange(len(counted) + 1), min_seqlen=1, max_seqlen=1)
