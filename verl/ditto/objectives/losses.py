"""The loss of an update: verl's policy loss, and the terms of `plain` and `nll` parts, which verl does not have.

verl computes the clipped parts, with advantages and weights per sequence; KL and entropy terms too. Sequences of plain
and nll parts have weight 0 there, and are added here as  -agg(c_t log pi_t),  where the column PLAIN holds c_t = weight
times advantage of every token.

In the modes seq-mean-* verl divides by `global_batch_size`, one number for all mini-batches of a step: their rows,
including padding and failed sessions. The weights of the sequences would correct that in the policy loss, but the KL
and entropy terms have no weights and would come out too small. So the column COUNTED holds how many sequences of the
row's mini-batch count, and verl divides by that. A mini-batch in which every session failed has loss 0.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

COUNTED = "counted_sequences"
PLAIN = "plain_weights"


def objective_loss(config: Any, model_output: Any, data: TensorDict, dp_group: Any = None) -> tuple[torch.Tensor, Any]:
    """The loss of one micro-batch, for verl's `set_loss_fn`.

    Args:
        config: verl's ActorConfig.
        model_output: what the engine returns, with `log_probs` of all tokens.
        data: a micro-batch with the columns of verl's `ppo_loss`; COUNTED, the same number in every row of a
            mini-batch; and PLAIN, where the objective has plain or nll parts.

    Returns:
        The loss, and verl's metrics; with PLAIN also `plain_loss`, the sum of those parts.
    """
    column = data[COUNTED]
    counted = int((column.values() if column.is_nested else column).flatten()[0])
    tu.assign_non_tensor(data, global_batch_size=max(counted, 1))
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    if PLAIN in data:
        log_probs = no_padding_2_padding(model_output["log_probs"], data)
        padded = data.select(PLAIN, "response_mask").to_padded_tensor()
        # ppo_loss has just set global_batch_info for this micro-batch.
        plain_loss = agg_loss(
            -padded[PLAIN] * log_probs, padded["response_mask"].bool(), config.loss_agg_mode, **config.global_batch_info
        )
        loss = loss + plain_loss
        metrics["plain_loss"] = Metric(value=plain_loss, aggregation=AggregationType.SUM)
    return (loss, metrics) if counted else (loss * 0.0, metrics)


def counted_column(counted: list[int]) -> torch.Tensor:
    """The column COUNTED: a jagged tensor of one int64 a row."""
    values = torch.tensor(counted, dtype=torch.int64)
    return torch.nested.nested_tensor_from_jagged(values, torch.arange(len(counted) + 1), min_seqlen=1, max_seqlen=1)
