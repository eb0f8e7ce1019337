"""The sequences of one training step, as the trainer sees them: their records, their sessions' traces, their plan.

`StepBatch.fetch` reads what the agent loops left in verl's queue, `arrange` follows the layout on ranks and
mini-batches, `plan` turns records into one advantage and one loss weight per sequence.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ditto.batch.jagged import row_sums, with_values
from ditto.batch.minibatch_layout import Layout
from ditto.batch.queue import KVBatchMeta, tq
from ditto.objectives.advantages import group_advantages
from ditto.objectives.loss_weights import counted_sequences, sequence_weights
from ditto.rollout.agent_loop import SequenceRecord
from ditto.settings import Settings
from soul.record import SessionRecord

PADDING = SequenceRecord("padding", "", "", "", 0.0, valid=False)


@dataclass(frozen=True)
class Columns:
    """What the trainer holds of every row's response tokens, jagged, in the order of the batch.

    Attributes:
        mask: int64, 1 where the policy sampled the token.
        old_log_probs: float32, by the actor before the step's first update, in the context that is trained.
        rollout_log_probs: float32, by the rollout engine, in the context that was sampled in.
    """

    mask: torch.Tensor
    old_log_probs: torch.Tensor
    rollout_log_probs: torch.Tensor


@dataclass(frozen=True)
class LossPlan:
    """What the loss needs of every row of the (padded, ordered) batch.

    Attributes:
        advantages, weights, rewards: one value a row; 0 for invalid sequences and padding.
        advantage_of: session -> kind -> advantage, for the traces.
        counted: for each row, how many sequences of its mini-batch have a token that is counted.
    """

    advantages: list[float]
    weights: list[float]
    rewards: list[float]
    advantage_of: dict[str, dict[str, float]]
    counted: list[int]


@dataclass
class StepBatch:
    """Records in the order of the batch's rows; padding rows included once `arrange` has run."""

    records: list[SequenceRecord]
    traces: list[SessionRecord]
    order: list[int] = field(default_factory=list)
    layout: Layout | None = None
    rows_of: list[list[int]] = field(default_factory=list)  # the rows of each mini-batch
    columns: Columns | None = None  # there once the actor's log-probs are computed
    planned: LossPlan | None = None
    advantages: torch.Tensor | None = None  # jagged, one value a response token; 0 where the policy did not sample it

    @classmethod
    def fetch(cls, batch: KVBatchMeta) -> StepBatch:
        """Read the records of all rows of the batch."""
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        extra = data.pop("extra_fields").tolist()
        records = [SequenceRecord(**fields["ditto"]) for fields in extra]
        traces = [SessionRecord.from_line(fields["trace"], "a step's trace") for fields in extra if "trace" in fields]
        return cls(records, sorted(traces, key=lambda trace: (trace.task, trace.row, trace.session)))

    @property
    def prompts(self) -> list[str]:
        """The prompts' ids, in order of first appearance."""
        return list(dict.fromkeys(r.prompt for r in self.records if r.prompt))

    def is_kind(self, *kinds: str) -> list[bool]:
        """Whether each row is of one of these kinds."""
        return [record.kind in kinds for record in self.records]

    def sort(self, seed: str) -> None:
        """Bring the rows into an order that does not depend on which session finished first; `order` is it.

        Prompts are sorted by task and row, then permuted by `seed` (say, the run's seed and the step). Without the
        permutation a mini-batch would hold the prompts of few tasks, and the last task of the alphabet would always
        come last. A prompt's rows stay together, session by session.
        """
        row_of = {trace.session: (trace.task, trace.row) for trace in self.traces}
        prompts = sorted({(*row_of[record.session], record.prompt) for record in self.records})
        random.Random(seed).shuffle(prompts)
        place = {prompt: i for i, (_, _, prompt) in enumerate(prompts)}
        self.order = sorted(
            range(len(self.records)), key=lambda i: (place[self.records[i].prompt], self.records[i].session, i)
        )
        self.records = [self.records[i] for i in self.order]

    def arrange(self, layout: Layout) -> None:
        """Follow the layout: padding rows appended, then everything reordered."""
        padded = self.records + [PADDING] * (len(layout.order) - len(self.records))
        self.records = [padded[i] for i in layout.order]
        self.rows_of = [[] for _ in range(layout.updates)]
        for row, position in enumerate(layout.order):
            self.rows_of[layout.mini_batch[position]].append(row)
        self.layout = layout

    def response_lengths(self, tokens: Sequence[int]) -> dict[str, float]:
        """Mean sampled tokens of a draft and of a refined sequence."""
        numbers = {}
        for name, kinds in {"draft": ("draft",), "refined": ("refined_base", "refined_feedback")}.items():
            lengths = [n for r, n in zip(self.records, tokens, strict=True) if r.valid and r.kind in kinds]
            if lengths:
                numbers[f"ditto/response_tokens_{name}"] = statistics.fmean(lengths)
        return numbers

    def counted_tokens(self, mask: torch.Tensor) -> torch.Tensor:
        """The response mask (jagged), with one token counted in a mini-batch that has none.

        verl divides a mini-batch's loss by its tokens: where every session failed that would be 0/0. The token has
        weight 0, so the update of such a mini-batch is exactly zero. Returns the mask itself where nothing is missing.
        """
        tokens = row_sums(mask)
        empty = [rows[0] for rows in self.rows_of if not any(tokens[i] for i in rows)]
        if not empty:
            return mask
        values = mask.values().clone()
        values[mask.offsets()[empty]] = 1
        return with_values(values, mask)

    def plan(self, settings: Settings, *, normalize_std: bool, loss_agg_mode: str, tokens: Sequence[int]) -> LossPlan:
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
        weights, counted = [0.0] * len(self.records), [0] * len(self.records)
        for rows in self.rows_of:
            of_rows = sequence_weights(
                [parts[i] for i in rows],
                [tokens[i] for i in rows],
                settings.coefficients(),
                loss_agg_mode,
            )
            number = counted_sequences([tokens[i] for i in rows])
            for i, weight in zip(rows, of_rows, strict=True):
                weights[i], counted[i] = weight, number
        advantage_of: dict[str, dict[str, float]] = {}
        for record, value in zip(self.records, advantages, strict=True):
            if record.valid:
                advantage_of.setdefault(record.session, {})[record.kind] = value
        return LossPlan(advantages, weights, [r.reward for r in self.records], advantage_of, counted)
