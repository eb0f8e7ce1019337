"""The sequences of one training step, as the trainer sees them: their records, their sessions' traces, their plan.

`StepBatch.fetch` reads what the agent loops left in verl's queue, `arrange` follows the layout on ranks and
mini-batches, `plan` turns records into one advantage and one loss weight per sequence.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from ditto.advantages import group_advantages
from ditto.agent_loop import SequenceRecord
from ditto.layout import Layout
from ditto.loss_weights import sequence_weights
from ditto.settings import Settings

PADDING = SequenceRecord("padding", "", "", "", 0.0, valid=False)


@dataclass(frozen=True)
class Plan:
    """What the loss needs of every row of the (padded, ordered) batch.

    Attributes:
        advantages, weights, rewards: one value a row; 0 for invalid sequences and padding.
        advantage_of: session -> kind -> advantage, for the traces.
    """

    advantages: list[float]
    weights: list[float]
    rewards: list[float]
    advantage_of: dict[str, dict[str, float]]


@dataclass
class StepBatch:
    """Records in the order of the batch's rows; padding rows included once `arrange` has run."""

    records: list[SequenceRecord]
    traces: list[dict[str, Any]]
    order: list[int] = field(default_factory=list)
    layout: Layout | None = None
    mini_batch: list[int] = field(default_factory=list)

    @classmethod
    def fetch(cls, batch: KVBatchMeta) -> StepBatch:
        """Read the records of all rows of the batch."""
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        extra = data.pop("extra_fields").tolist()
        records = [SequenceRecord(**fields["ditto"]) for fields in extra]
        traces = [json.loads(fields["trace"]) for fields in extra if "trace" in fields]
        return cls(records, sorted(traces, key=lambda t: (t["task"], t["row"], t["session"])))

    @property
    def prompts(self) -> list[str]:
        """The prompts' ids, in order of first appearance."""
        return list(dict.fromkeys(r.prompt for r in self.records if r.prompt))

    @property
    def kinds(self) -> list[str]:
        """The kind of each row."""
        return [record.kind for record in self.records]

    def sort(self) -> None:
        """Bring the rows into an order that does not depend on which session finished first; `order` is it."""
        row_of = {trace["session"]: (trace["task"], trace["row"]) for trace in self.traces}
        self.order = sorted(
            range(len(self.records)),
            key=lambda i: (row_of[self.records[i].session], self.records[i].session, i),
        )
        self.records = [self.records[i] for i in self.order]

    def arrange(self, layout: Layout) -> None:
        """Follow the layout: padding rows appended, then everything reordered."""
        padded = self.records + [PADDING] * (len(layout.order) - len(self.records))
        self.records = [padded[i] for i in layout.order]
        self.mini_batch = [layout.mini_batch[i] for i in layout.order]
        self.layout = layout

    def response_lengths(self, tokens: Sequence[int]) -> dict[str, float]:
        """Mean sampled tokens of a draft and of a refined sequence."""
        numbers = {}
        for name, kinds in {"draft": ("draft",), "refined": ("refined_base", "refined_feedback")}.items():
            lengths = [n for r, n in zip(self.records, tokens, strict=True) if r.valid and r.kind in kinds]
            if lengths:
                numbers[f"ditto/response_tokens_{name}"] = statistics.fmean(lengths)
        return numbers

    def counted_tokens(self, masks: list[torch.Tensor]) -> list[torch.Tensor]:
        """The response masks, with one token counted in a mini-batch that has none.

        verl divides a mini-batch's loss by its tokens: where every session failed that would be 0/0. The token has
        weight 0, so the update of such a mini-batch is exactly zero.
        """
        assert self.layout is not None
        for m in range(self.layout.updates):
            rows = [i for i, mini_batch in enumerate(self.mini_batch) if mini_batch == m]
            if not any(masks[i].any() for i in rows):
                masks[rows[0]] = masks[rows[0]].clone()
                masks[rows[0]][0] = 1
        return masks

    def plan(self, settings: Settings, *, normalize_std: bool, loss_agg_mode: str, tokens: Sequence[int]) -> Plan:
        """Advantages and loss weights of all rows.

        Args:
            tokens: sampled tokens of each row (the sum of its response mask).
        """
        assert self.layout is not None
        part_of: dict[str, str] = {kind: part.name for part in settings.objective.parts for kind in part.kinds}
        parts = [part_of.get(r.kind) if r.valid else None for r in self.records]
        advantages = group_advantages(
            torch.tensor([r.reward for r in self.records], dtype=torch.float64),
            [(part, r.prompt) for part, r in zip(parts, self.records, strict=True)],
            [r.episode for r in self.records],
            torch.tensor([part is not None for part in parts]),
            normalize_std=normalize_std,
        ).tolist()
        weights = [0.0] * len(self.records)
        for m in range(self.layout.updates):
            rows = [i for i, mini_batch in enumerate(self.mini_batch) if mini_batch == m]
            of_rows = sequence_weights(
                [parts[i] for i in rows],
                [tokens[i] for i in rows],
                settings.coefficients(),
                loss_agg_mode,
                self.layout.rows,
            )
            for i, weight in zip(rows, of_rows, strict=True):
                weights[i] = weight
        advantage_of: dict[str, dict[str, float]] = {}
        for record, value in zip(self.records, advantages, strict=True):
            if record.valid:
                advantage_of.setdefault(record.session, {})[record.kind] = value
        return Plan(advantages, weights, [r.reward for r in self.records], advantage_of)
