"""Keep what an update's forward passes say of each row, for the metrics that a pass before the update would give.

The rows of an update are packed into micro-batches in an order of its own, so each carries its number (PLACES). Of a
row that is trained several times, the first counts: it is the one by the oldest weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from ditto.batch.jagged import jagged, row_lengths
from ditto.objectives.losses import PLACES

_KEPT = ("log_probs", "entropy")


class UpdateOutputs:
    """A loss that keeps the log-probs and entropies that it gets.

    Args:
        loss: computes the loss, as verl's `set_loss_fn` wants it.
    """

    def __init__(self, loss: Callable[..., Any]) -> None:
        self._loss = loss
        self._rows: dict[int, dict[str, Tensor]] = {}

    def __call__(self, model_output: Mapping[str, Any], data: TensorDict, dp_group: Any = None) -> Any:
        if PLACES in data:
            columns = {name: model_output[name] for name in _KEPT if model_output.get(name) is not None}
            rows = {name: _rows(column) for name, column in columns.items()}
            for number, place in enumerate(data[PLACES].values().tolist()):
                self._rows.setdefault(place, {name: values[number] for name, values in rows.items()})
        return self._loss(model_output=model_output, data=data, dp_group=dp_group)

    def take(self, places: Tensor) -> TensorDict:
        """What was kept of these rows, jagged, with a value for each token of prompt and response; then forget all.

        Args:
            places: jagged, the number of each row.
        """
        rows = [self._rows[place] for place in places.values().tolist()]
        self._rows = {}
        columns = {name: jagged([row[name] for row in rows]) for name in rows[0]}
        return TensorDict(columns, batch_size=len(rows))


def _rows(column: Tensor) -> tuple[Tensor, ...]:
    return column.detach().values().to("cpu", copy=True).split(row_lengths(column).tolist())


def places(rows: int) -> Tensor:
    """The column PLACES of a batch: its rows, numbered."""
    return jagged(list(torch.arange(rows).split(1)))
