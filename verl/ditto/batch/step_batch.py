"""The sequences of one training step in the trainer: their records, their sessions' traces, their advantages.

`StepBatch.fetch` reads what the agent loops left in verl's queue, `arrange` follows the layout on ranks and
mini-batches, `loss_plan.py` turns records into advantages and weights, and `loss_columns` turns those into the columns
that the workers' loss reads.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from tensordict import TensorDict
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_to_nested

from ditto.batch.jagged import jagged, per_token, with_values
from ditto.batch.loss_plan import plan_losses, with_means
from ditto.batch.minibatch_layout import Layout, RowSize
from ditto.batch.queue import KVBatchMeta, fetch
from ditto.batch.sequence_record import PADDING, SequenceRecord
from ditto.objectives.losses import ADVANTAGES, DISTILL_WEIGHTS, LOSS_WEIGHTS, ROWS, TEACHER_PROMPTS, TEACHERS
from ditto.settings import Settings
from soul.errors import RunFailed
from soul.record import SessionRecord
from verl import DataProto


class MissingSessions(RunFailed):
    """Requested sessions never came back: verl would have replaced them by padding."""


@dataclass(frozen=True)
class Columns:
    """Values of every row's response tokens in the trainer, jagged, in the order of the batch.

    Attributes:
        mask: int64, 1 where the policy sampled the token.
        old_log_probs: float32, from the actor before the step's first update, in the context that is trained; as
            sampled in the rows that `StepBatch.measured` leaves out.
        rollout_log_probs: float32, from the rollout engine, in the context in which the tokens were sampled.
    """

    mask: torch.Tensor
    old_log_probs: torch.Tensor
    rollout_log_probs: torch.Tensor


@dataclass
class StepBatch:
    """Records in the order of the batch's rows; padding rows included once `arrange` has run."""

    records: list[SequenceRecord]
    traces: list[SessionRecord]
    sequences: list[SequenceRecord] = field(default_factory=list)  # all that were sampled, without padding
    order: list[int] = field(default_factory=list)
    layout: Layout | None = None
    groups: Counter[str] = field(default_factory=Counter)  # known once the step is planned (`metrics.groups`)
    aggregation: tuple[str, float] = ("token-mean", 1.0)  # actor.loss_agg_mode and loss_scale_factor
    columns: Columns | None = None  # set once the actor's log-probs are computed
    measured: list[bool] | None = (
        None  # whether the actor's log-probs of a row are known; None: of all (`old_log_probs.py`)
    )
    reference: torch.Tensor | None = None  # jagged, log-probs of the response tokens under the reference policy
    entropy: torch.Tensor | None = None  # of the actor at each sampled token of the measured rows, shape (tokens,)
    policy: str = ""  # that trains it, where a run has several
    advantages: torch.Tensor | None = None  # jagged, one value per response token; 0 where the policy did not sample it

    @classmethod
    def fetch(cls, batch: KVBatchMeta) -> StepBatch:
        """Read the records of all rows of the batch."""
        extra = fetch(batch, "extra_fields").pop("extra_fields").tolist()
        records = [SequenceRecord(**fields["ditto"]) for fields in extra]
        traces = [SessionRecord.from_line(fields["trace"], "a step's trace") for fields in extra if "trace" in fields]
        return cls(records, sorted(traces, key=lambda trace: (trace.task, trace.row, trace.session)), list(records))

    def require_sessions(self, step: int, prompts: int, n: int) -> None:
        """Check that every session of the prompts that the step asked for came back, `n` of each."""
        got = len({record.session.partition(":")[0] for record in self.records})  # a play has a session for each side
        if got != prompts * n:
            raise MissingSessions(
                f"Step {step} asked for {prompts * n} sessions ({prompts} prompts x rollout.n={n}) and got "
                f"{got}: an agent-loop worker failed; its traceback is in the log of AgentLoopWorkerTQ."
            )

    def of_policy(self, batch: KVBatchMeta, policy: str) -> tuple[KVBatchMeta, list[str]]:
        """Keep the records of one policy. Returns the batch of its rows, and the keys of the others."""
        self.policy, kept = policy, [row for row, record in enumerate(self.records) if record.policy == policy]
        keys = [batch.keys[row] for row in kept]
        self.records = [self.records[row] for row in kept]
        return batch.select_keys(keys), sorted(set(batch.keys) - set(keys))

    @property
    def prompts(self) -> list[str]:
        """The prompts' ids, in order of first appearance."""
        return list(dict.fromkeys(r.prompt for r in self.records if r.prompt))

    def is_kind(self, *kinds: str) -> list[bool]:
        """Say of each row if it is of one of these kinds."""
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

    def plan(self, mini_batch: Sequence[int], settings: Settings, loss_agg_mode: str, loss_scale_factor: float) -> None:
        """Advantages and weights of all sequences, which follow from rewards and lengths alone (`plan_losses`)."""
        self.aggregation = loss_agg_mode, loss_scale_factor
        self.records = plan_losses(self.records, mini_batch, settings.objective, settings.options, *self.aggregation)
        self.sequences = list(self.records)
        learning = {record.prompt for record in self.records if record.loss.learns}
        self.groups.update(groups=len(self.prompts), idle=len(self.prompts) - len(learning))

    def skip_idle(self, mini_batch: Sequence[int]) -> list[int]:
        """Drop the rows without a learning signal, on which no forward pass is spent. Returns the rows that stay.

        Their tokens still count in the averages. Every mini-batch keeps a row, so the number of updates is the same.
        """
        kept = {row for row, record in enumerate(self.records) if record.loss.learns}
        for number in set(mini_batch) - {mini_batch[row] for row in kept}:
            of_it = [row for row, of_row in enumerate(mini_batch) if of_row == number]
            kept.add(next((row for row in of_it if self.records[row].valid), of_it[0]))
        rows = sorted(kept)
        self.records = with_means(
            [self.records[row] for row in rows], [mini_batch[row] for row in rows], *self.aggregation
        )
        return rows

    def without_idle_rows(
        self, batch: KVBatchMeta, mini_batch: Sequence[int]
    ) -> tuple[list[int], KVBatchMeta, list[str]]:
        """The mini-batches and the batch of the rows that `skip_idle` keeps, and the keys of the others.

        The others stay in the queue until the step ends: clearing them earlier would free their places for the padding
        rows that are added next.
        """
        kept, lengths = self.skip_idle(mini_batch), [tag["seq_len"] for tag in batch.tags]
        tokens, left = sum(lengths), sum(lengths[row] for row in kept)
        self.groups.update(skipped=len(lengths) - len(kept), tokens_skipped=tokens - left, tokens=tokens)
        keys = [batch.keys[row] for row in kept]
        return [mini_batch[row] for row in kept], batch.select_keys(keys), sorted(set(batch.keys) - set(keys))

    def row_sizes(self, lengths: Sequence[int]) -> list[RowSize]:
        """The cost of every row of these tokens in its group's tree; rows after the records are padding."""
        padding = [PADDING] * (len(lengths) - len(self.records))
        rows = zip([*self.records, *padding], lengths, strict=True)
        return [RowSize(record.prompt, length - record.tokens, record.tokens) for record, length in rows]

    def arrange(self, layout: Layout) -> None:
        """Append padding rows and reorder everything as the layout says."""
        padded = [*self.records, *[PADDING] * (len(layout.order) - len(self.records))]
        self.records = [padded[position] for position in layout.order]
        self.layout = layout

    def measure(self, rows: Sequence[int], log_probs: torch.Tensor) -> None:
        """Add the actor's log-probs (jagged, of response tokens) of some rows, ascending."""
        assert self.columns is not None and self.measured is not None
        wanted = set(rows)
        chosen = [row in wanted for row in range(len(self.records))]
        values = self.columns.old_log_probs.values().clone()
        values[per_token(chosen, self.columns.mask)] = log_probs.values()
        self.columns = replace(self.columns, old_log_probs=with_values(values, self.columns.mask))
        self.measured = [old or new for old, new in zip(self.measured, chosen, strict=True)]

    def is_measured(self, *kinds: str) -> list[bool]:
        """Say of each row if it is of one of these kinds, and the actor's log-probs of it are known."""
        measured = self.measured or [True] * len(self.records)
        return [of_kind and known for of_kind, known in zip(self.is_kind(*kinds), measured, strict=True)]

    def first_mini_batch(self) -> list[int]:
        """The rows of the step's first update."""
        assert self.layout is not None
        return [row for row, place in enumerate(self.layout.order) if self.layout.mini_batch[place] == 0]

    def correction(self, config: Any) -> tuple[torch.Tensor, dict[str, Any]] | None:
        """verl's importance weights between actor and rollout engine (`algorithm.rollout_correction`).

        Refined answers in the base context weigh 1: their rollout log-probs belong to another context.

        Returns:
            Weights of all response tokens, float32 of shape (all tokens,), and verl's metrics of them. None where no
            correction is configured, and where no token was sampled in the context in which it is trained.
        """
        if not config or not config.get("rollout_is"):
            return None
        assert self.columns is not None
        mask = self.columns.mask
        own = mask.values().bool() & ~per_token(self.is_kind("refined_base"), mask)
        if not own.any():
            return None
        padded = {
            "old_log_probs": self.columns.old_log_probs.to_padded_tensor(0.0),
            "rollout_log_probs": self.columns.rollout_log_probs.to_padded_tensor(0.0),
            # verl averages over this mask, so rows of another context must not be in it.
            "response_mask": with_values(own.to(mask.values().dtype), mask).to_padded_tensor(0),
        }
        corrected, metrics = compute_rollout_correction_and_add_to_batch(
            DataProto(batch=TensorDict(padded, batch_size=len(self.records))), config
        )
        weights = response_to_nested(corrected.batch["rollout_is_weights"], mask).values()
        return torch.where(own, weights, 1.0), metrics

    def loss_columns(self, correction: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """The columns that `ditto.objectives.losses` reads of every row, jagged; weights times `correction`."""
        assert self.columns is not None
        losses, mask = [record.loss for record in self.records], self.columns.mask
        sampled = mask.values().float()

        def column(row_values: list[float]) -> torch.Tensor:
            values = per_token(row_values, mask) * sampled
            return with_values(values if correction is None else values * correction, mask)

        self.advantages = with_values(per_token([loss.advantage for loss in losses], mask) * sampled, mask)
        rows = [torch.tensor((loss.part, loss.share, loss.mean), dtype=torch.float64) for loss in losses]
        weights = column([loss.weight for loss in losses])
        columns = {ADVANTAGES: self.advantages, LOSS_WEIGHTS: weights, ROWS: jagged(rows)}
        if any(loss.distill_weight for loss in losses):
            columns[DISTILL_WEIGHTS] = column([loss.distill_weight for loss in losses])
            if any(loss.teacher >= 0 for loss in losses):
                columns[TEACHERS] = jagged([torch.tensor([loss.teacher]) for loss in losses])
            else:
                prompts = [record.teacher_prompt or [0] for record in self.records]
                columns[TEACHER_PROMPTS] = jagged([torch.tensor(ids, dtype=torch.int64) for ids in prompts])
        return columns
