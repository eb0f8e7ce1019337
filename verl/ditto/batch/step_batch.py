"""The sequences of one training step in the trainer: their records, their sessions' traces, their advantages.

`StepBatch.fetch` reads what the agent loops left in verl's queue, `arrange` follows the layout on ranks and
mini-batches, `plan` turns records into one advantage and one loss weight per sequence, and `loss_columns` turns those
into the columns that the workers' loss reads.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ditto.batch.jagged import per_token, row_sums, with_values
from ditto.batch.minibatch_layout import Layout
from ditto.batch.queue import KVBatchMeta, tq
from ditto.batch.sequence_record import SequenceRecord
from ditto.objectives.advantages import part_advantages
from ditto.objectives.loss_weights import counted_sequences, sequence_weights
from ditto.objectives.losses import COUNTED, PLAIN, counted_column
from ditto.objectives.spec import Part
from ditto.settings import Settings
from soul.record import SessionRecord

PADDING = SequenceRecord("padding", "", "", "", 0.0, valid=False)


@dataclass(frozen=True)
class Columns:
    """Values of every row's response tokens in the trainer, jagged, in the order of the batch.

    Attributes:
        mask: int64, 1 where the policy sampled the token.
        old_log_probs: float32, from the actor before the step's first update, in the context that is trained.
        rollout_log_probs: float32, from the rollout engine, in the context in which the tokens were sampled.
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
        plain: whether each row belongs to a part without clipping (loss "plain" or "nll").
    """

    advantages: list[float]
    weights: list[float]
    rewards: list[float]
    advantage_of: dict[str, dict[str, float]]
    counted: list[int]
    plain: list[bool]


@dataclass
class StepBatch:
    """Records in the order of the batch's rows; padding rows included once `arrange` has run."""

    records: list[SequenceRecord]
    traces: list[SessionRecord]
    order: list[int] = field(default_factory=list)
    layout: Layout | None = None
    rows_of: list[list[int]] = field(default_factory=list)  # the rows of each mini-batch
    columns: Columns | None = None  # set once the actor's log-probs are computed
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
        """Order the rows independently of which session finished first, and store that order in `order`.

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
        """Append padding rows and reorder everything as the layout says."""
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

    def context_gap(self, columns: Columns) -> dict[str, float]:
        """Mean of log pi(y' | x, f) - log pi(y' | x) over refined sequences in the base context, summed over tokens."""
        refined = self.is_kind("refined_base")
        if not any(refined):
            return {}
        gaps = columns.rollout_log_probs.values() - columns.old_log_probs.values()
        trained = per_token(refined, columns.mask) & columns.mask.values().bool()
        return {"ditto/context_logprob_gap": gaps[trained].sum().item() / sum(refined)}

    def counted_tokens(self, mask: torch.Tensor) -> torch.Tensor:
        """The response mask (jagged), with one token counted in a mini-batch that has none.

        verl divides a mini-batch's loss by its tokens, which would be 0/0 if every session failed. The token has weight
        0, so the update of such a mini-batch is exactly zero. Returns the mask itself if every mini-batch has a token.
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
            normalize_std: false leaves out the division by the spread in every part of the objective.
            loss_agg_mode: verl's `actor.loss_agg_mode`.
            tokens: sampled tokens of each row (the sum of its response mask).
        """
        assert self.layout is not None
        parts = settings.objective.parts
        part_of: dict[str, Part] = {kind: part for part in parts for kind in part.kinds}
        part_of_row = [part_of.get(r.kind) if r.valid else None for r in self.records]
        advantages = self._advantages(parts, part_of_row, normalize_std)
        names = [part.name if part else None for part in part_of_row]
        weights, counted = [0.0] * len(self.records), [0] * len(self.records)
        for rows in self.rows_of:
            row_tokens = [tokens[i] for i in rows]
            row_weights = sequence_weights([names[i] for i in rows], row_tokens, settings.part_weights(), loss_agg_mode)
            number = counted_sequences(row_tokens)
            for i, weight in zip(rows, row_weights, strict=True):
                weights[i], counted[i] = weight, number
        advantage_of: dict[str, dict[str, float]] = {}
        for record, value in zip(self.records, advantages, strict=True):
            if record.valid:
                advantage_of.setdefault(record.session, {})[record.kind] = value
        plain = [part is not None and part.loss != "clipped" for part in part_of_row]
        return LossPlan(advantages, weights, [r.reward for r in self.records], advantage_of, counted, plain)

    def _advantages(
        self, parts: Sequence[Part], part_of_row: Sequence[Part | None], normalize_std: bool
    ) -> list[float]:
        """Every row's advantage, by the rule of its part; 0 for rows of no part."""
        drafts: dict[str, dict[str, float]] = {}  # prompt -> session -> reward: a draft with several rows counts once
        for r in self.records:
            if r.draft_reward is not None:
                drafts.setdefault(r.prompt, {})[r.session] = r.draft_reward
        draft_rewards = {prompt: list(rewards.values()) for prompt, rewards in drafts.items()}
        rewards = torch.tensor([r.reward for r in self.records], dtype=torch.float64)
        prompts, episodes = [r.prompt for r in self.records], [r.episode for r in self.records]
        advantages = torch.zeros_like(rewards)
        for part in parts:
            trained = torch.tensor([row_part is part for row_part in part_of_row])
            advantages += part_advantages(
                part, rewards, prompts, episodes, trained, draft_rewards, normalize_std=normalize_std
            )
        values: list[float] = advantages.tolist()
        return values

    def loss_columns(self, correction: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """What `ditto.objectives.losses` reads of every row, jagged.

        Args:
            correction: further weights of all response tokens, of shape (all tokens,).
        """
        assert self.columns is not None and self.planned is not None
        plan, mask = self.planned, self.columns.mask
        sampled = mask.values().float()
        weights, advantages = per_token(plan.weights, mask) * sampled, per_token(plan.advantages, mask) * sampled
        if correction is not None:
            weights = weights * correction
        self.advantages = with_values(advantages, mask)
        columns = {COUNTED: counted_column(plan.counted)}
        if any(plan.plain):
            plain = per_token(plan.plain, mask)
            columns[PLAIN] = with_values((weights * advantages).masked_fill(~plain, 0.0), mask)
            # verl's policy loss covers the clipped parts only. With 0 in both columns the other rows add nothing to it,
            # nor to its clip fraction.
            weights, advantages = weights.masked_fill(plain, 0.0), advantages.masked_fill(plain, 0.0)
        # verl multiplies each token's loss by rollout_is_weights: the part's weight times the rollout correction.
        columns |= {"advantages": with_values(advantages, mask), "rollout_is_weights": with_values(weights, mask)}
        counted = self.counted_tokens(mask)
        if counted is not mask:
            columns |= {"response_mask": counted, "loss_mask": counted}
        return columns
