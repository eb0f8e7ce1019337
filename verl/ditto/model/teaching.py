"""The teacher's forward pass over a micro-batch: what SDPO's loss compares the student with.

The engine runs it just before the student's forward pass, so nothing of the teacher travels through verl's queue, and
the teacher has the weights of this moment. It reads the prompt in the feedback context and the draft's own response,
with everything that others said in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from ditto.batch.jagged import row_lengths, with_values
from ditto.objectives.losses import DISTILL_WEIGHTS, TEACHER_PROMPTS

_SETTINGS = ("use_remove_padding", "use_fused_kernels", "pad_mode", "temperature")


def teacher_batch(micro_batch: TensorDict) -> tuple[TensorDict, Tensor]:
    """The rows of a micro-batch that are distilled, in the feedback context, and which rows they are (int64).

    At least one row, because all ranks must take part in a forward pass of FSDP.
    """
    weights, prompts = micro_batch[DISTILL_WEIGHTS], micro_batch[TEACHER_PROMPTS]
    rows = [i for i, row in enumerate(weights.unbind()) if row.any()] or [0]
    of_rows = {name: [micro_batch[name].unbind()[i] for i in rows] for name in ("responses", "response_mask")}
    of_rows["prompts"] = [prompts.unbind()[i] for i in rows]
    ids = [torch.cat(pair) for pair in zip(of_rows["prompts"], of_rows["responses"], strict=True)]
    positions = [torch.arange(len(row), device=row.device) for row in ids]
    of_rows |= {"input_ids": ids, "position_ids": positions}
    columns = {name: torch.nested.as_nested_tensor(values, layout=torch.jagged) for name, values in of_rows.items()}
    if micro_batch["position_ids"].dim() == 3:  # vision models count in several dimensions; text has the same in all
        one, dimensions = columns["position_ids"], micro_batch["position_ids"].shape[1]
        columns["position_ids"] = torch.nested.nested_tensor_from_jagged(
            one.values().expand(dimensions, -1).contiguous(), one.offsets(), jagged_dim=2
        )
    settings = {name: micro_batch[name] for name in _SETTINGS if name in micro_batch}
    data = tu.get_tensordict(columns, {name: tu.unwrap_non_tensor_data(value) for name, value in settings.items()})
    return data, torch.tensor(rows)


def next_token_places(prompts: Tensor, responses: Tensor) -> Tensor:
    """Places in the packed rows (prompt, response) whose next token is a response token; int64, row by row."""
    prompt, response = row_lengths(prompts), row_lengths(responses)
    ends = (prompt + response).cumsum(0)
    starts = ends - response - 1
    first = response.cumsum(0) - response
    offset = torch.arange(int(response.sum()), device=response.device) - first.repeat_interleave(response)
    return starts.repeat_interleave(response) + offset


def response_column(micro_batch: TensorDict, rows: Tensor, values: Tensor) -> Tensor:
    """A jagged column of all rows' response tokens: the values at these rows, 0 elsewhere."""
    lengths = row_lengths(micro_batch["responses"])
    chosen = torch.zeros(len(lengths), dtype=torch.bool, device=lengths.device)
    chosen[rows.to(lengths.device)] = True
    column = values.new_zeros(int(lengths.sum()))
    column[chosen.repeat_interleave(lengths)] = values
    return with_values(column, micro_batch["responses"])


def distilled_tokens(micro_batch: TensorDict, rows: Tensor) -> Tensor:
    """Which response tokens of these rows are distilled: bool, row by row."""
    weights = micro_batch[DISTILL_WEIGHTS].unbind()
    return torch.cat([weights[i] != 0 for i in rows.tolist()])


def student_places(micro_batch: TensorDict, rows: Tensor) -> Tensor:
    """Places of these rows' next tokens in the packed micro-batch; int64, row by row."""
    places = next_token_places(micro_batch["prompts"], micro_batch["responses"])
    lengths = row_lengths(micro_batch["responses"])
    chosen = torch.zeros(len(lengths), dtype=torch.bool, device=lengths.device)
    chosen[rows.to(lengths.device)] = True
    return places[chosen.repeat_interleave(lengths)]


def distillation_of(micro_batch: TensorDict) -> Mapping[str, Any] | None:
    """What the trainer says of the distillation: `loss`, and the options of `algorithm.sdpo`."""
    chosen: Mapping[str, Any] | None = tu.get_non_tensor_data(micro_batch, "distillation", None)
    return chosen
