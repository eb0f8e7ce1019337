"""A step as the union of its parts.

Between two weight syncs, separate_async trains `parameter_sync_step` parts, each a batch of its own; the other modes
train one. The numbers of a step are those of all parts: counts are added, and a mean is over all sessions, sequences,
tokens or optimizer updates of the step. verl would average every number over the parts, by their rows.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from verl.utils.metric import reduce_metrics

from ditto.batch.jagged import concatenated
from ditto.batch.step_batch import Columns, StepBatch


@dataclass
class StepParts:
    """The parts that a step has trained so far.

    Attributes:
        batches: of each part, in the order in which they are trained.
        updated: whether any part moved a weight; `moved`: the policies whose part did.
        rollouts: when the rollout phase of each part began and ended, unix time.
    """

    batches: list[StepBatch] = field(default_factory=list)
    updated: bool = False
    moved: set[str] = field(default_factory=set)
    rollouts: list[tuple[float, float]] = field(default_factory=list)
    _updates: int = 0
    _reported: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _rate: float = 0.0

    @property
    def current(self) -> StepBatch:
        """The part that is being trained."""
        return self.batches[-1]

    @property
    def begins(self) -> bool:
        """True if the weights that this part trains are still those from before the step."""
        return all(batch.policy != self.current.policy for batch in self.batches[:-1])

    def add_update(self, updates: int, reported: Mapping[str, Any]) -> None:
        """Add what the workers report of a part's update.

        Args:
            updates: number of optimizer updates.
            reported: metric -> its value, or one for each update; with `actor/grad_norm` and `actor/lr`.
        """
        self._updates += updates
        for name, values in reported.items():
            self._reported[name] += np.ravel(values).tolist()
        self._rate = self._reported["actor/lr"][-1]
        if float(np.mean(reported["actor/grad_norm"])) > 0 and self._rate > 0:
            self.updated = True
            self.moved.add(self.current.policy)

    def update_metrics(self) -> dict[str, Any]:
        """Metrics of the step's updates: means over the updates (and largest values), and the last learning rate."""
        numbers: dict[str, Any] = reduce_metrics(dict(self._reported))
        return numbers | {"actor/updates": self._updates} | ({"actor/lr": self._rate} if self._reported else {})

    def joined(self) -> StepBatch:
        """The sequences of all parts, in the order of their rows, with the columns that metrics read."""
        first, *more = self.batches
        if not more:
            return first
        columns = [batch.columns for batch in self.batches if batch.columns is not None]
        entropies = [batch.entropy for batch in self.batches if batch.entropy is not None]
        advantages = [batch.advantages for batch in self.batches if batch.advantages is not None]
        references = [batch.reference for batch in self.batches if batch.reference is not None]  # of all parts or none
        assert len(columns) == len(advantages) == len(self.batches)
        groups = Counter[str]()
        for batch in self.batches:
            groups.update(batch.groups)
        traces = chain.from_iterable(batch.traces for batch in self.batches)
        return StepBatch(
            records=[record for batch in self.batches for record in batch.records],
            traces=sorted(traces, key=lambda trace: (trace.task, trace.row, trace.session)),
            sequences=[record for batch in self.batches for record in batch.sequences],
            groups=groups,
            columns=Columns(
                concatenated([each.mask for each in columns]),
                concatenated([each.old_log_probs for each in columns]),
                concatenated([each.rollout_log_probs for each in columns]),
            ),
            measured=[known for batch in self.batches for known in batch.measured or [True] * len(batch.records)],
            entropy=torch.cat(entropies) if entropies else None,
            reference=concatenated(references) if references else None,
            advantages=concatenated(advantages),
        )
