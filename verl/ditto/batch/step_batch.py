"""The sequences of one training step in the trainer: their records, their sessions' traces, their advantages.

`StepBatch.fetch` reads what the agent loops left in verl's queue, `arrange` follows the layout on ranks and
mini-batches, `loss_plan.py` turns records into advantages and weights, and `loss_columns` turns those into the columns
that the workers' loss reads.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from verl.trainer.ppo.core_algos import kl_penalty

from ditto.batch.jagged import jagged, per_token, with_values
from ditto.batch.loss_plan import plan_losses, with_means
from ditto.batch.minibatch_layout import Layout, RowSize
from ditto.batch.queue import KVBatchMeta, fetch
from ditto.batch.sequence_record import PADDING, SequenceRecord
from ditto.objectives.losses import ADVANTAGES, DISTILL_WEIGHTS, LOSS_WEIGHTS, ROWS, STYLE, TEACHER_PROMPTS, TEACHERS
from ditto.settings import Settings
from soul.errors import RunFailed
from soul.record import SessionRecord


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
    groups: Counter[str] = field(default_factory=Counter)  # known once the step is planned (`group_metrics`)
    aggregation: tuple[str, float] = ("token-mean", 1.0)  # actor.loss_agg_mode and loss_scale_factor
    columns: Columns | None = None  # set once the actor's log-probs are computed
    measured: list[bool] | None = None  # whether the actor's log-probs of a row are known; None: of all (`pi_old.py`)
    style: torch.Tensor | None = None  # jagged, 1 at a style token of a row with a signal (style_signal.py)
    reference: torch.Tensor | None = None  # jagged, log-probs of the response tokens under the reference policy
    entropy: torch.Tensor | None = None  # of the actor at each sampled token of the measured rows, shape (tokens,)
    advantages: torch.Tensor | None = None  # jagged, one value per response token; 0 where the policy did not sample it

    @classmethod
    def fetch(cls, batch: KVBatchMeta) -> StepBatch:
        """Read the records of all rows of the batch."""
        extra = fetch(batch, "extra_fields").pop("extra_fields").tolist()
        records = [SequenceRecord(**fields["ditto"]) for fields in extra]
        traces = [SessionRecord.from_line(fields["trace"], "a step's trace") for fields in extra if "trace" in fields]
        return cls(records, sorted(traces, key=lambda trace: (trace.task, trace.row, trace.session)), list(records))

    def require_sessions(self, step: int, prompts: int, n: int) -> None:
        """Check that every session came back.

        Args:
            prompts: that the step asked for.
            n: sessions of each prompt.

        Raises:
            MissingSessions: there are fewer, or more.
        """
        if len(self.traces) != prompts * n:
            raise MissingSessions(
                f"Step {step} asked for {prompts * n} sessions ({prompts} prompts x rollout.n={n}) and got "
                f"{len(self.traces)}. An agent-loop worker failed outside of a session; its traceback is in the log of "
                "the AgentLoopWorkerTQ actors."
            )

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
        """Advantages and weights of all sequences, which follow from rewards and lengths alone.

        Args:
            mini_batch: the number of each row's mini-batch.
            loss_agg_mode, loss_scale_factor: verl's, of `actor`.
        """
        self.aggregation = loss_agg_mode, loss_scale_factor
        self.records = plan_losses(self.records, mini_batch, settings.objective, settings.options, *self.aggregation)
        self.sequences = list(self.records)
        learning = {record.prompt for record in self.records if record.loss.learns}
        self.groups.update(groups=len(self.prompts), idle=len(self.prompts) - len(learning))

    def skip_idle(self, mini_batch: Sequence[int]) -> list[int]:
        """Drop the rows without a learning signal, so that no forward pass is spent on them.

        Their tokens still count in the averages. Every mini-batch keeps a row, so the number of updates is the same.

        Returns:
            The rows that stay.
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
        self.count_skipped(lengths, kept)
        keys = [batch.keys[row] for row in kept]
        return [mini_batch[row] for row in kept], batch.select_keys(keys), sorted(set(batch.keys) - set(keys))

    def count_skipped(self, lengths: Sequence[int], kept: Sequence[int]) -> None:
        """Count the rows without a forward pass.

        Args:
            lengths: tokens of every row before `skip_idle`, prompts included.
            kept: the rows that stay.
        """
        left = sum(lengths[row] for row in kept)
        self.groups.update(skipped=len(lengths) - len(kept), tokens_skipped=sum(lengths) - left, tokens=sum(lengths))

    def row_sizes(self, lengths: Sequence[int]) -> list[RowSize]:
        """The cost of every row as part of its group's tree; rows after the records are padding.

        Args:
            lengths: tokens of every row, prompt and response.
        """
        padding = [PADDING] * (len(lengths) - len(self.records))
        rows = zip([*self.records, *padding], lengths, strict=True)
        return [RowSize(record.prompt, length - record.tokens, record.tokens) for record, length in rows]

    def arrange(self, layout: Layout) -> None:
        """Append padding rows and reorder everything as the layout says."""
        padded = [*self.records, *[PADDING] * (len(layout.order) - len(self.records))]
        self.records = [padded[position] for position in layout.order]
        self.layout = layout

    def measure(self, rows: Sequence[int], log_probs: torch.Tensor) -> None:
        """Add the actor's log-probs of some rows.

        Args:
            rows: ascending.
            log_probs: jagged, of their response tokens.
        """
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

    def sequence_metrics(self, *, teaches_feedback: bool) -> dict[str, float]:
        """Numbers and lengths of the sequences.

        Args:
            teaches_feedback: whether the teacher reads the feedback: report the share of drafts whose prompt with
                feedback is known.
        """
        valid = [record for record in self.sequences if record.valid]
        numbers = {"ditto/sequences": float(len(valid))}
        numbers["ditto/sequences_trained"] = float(sum(record.valid for record in self.records))
        for name, refined in {"draft": False, "refined": True}.items():
            sampled = [record for record in valid if record.refined is refined]
            if sampled:
                numbers[f"ditto/response_tokens_{name}"] = statistics.fmean(record.tokens for record in sampled)
            cached = [record.cached_tokens for record in sampled if record.cached_tokens is not None]
            if sampled and len(cached) == len(sampled):
                numbers[f"ditto/prefix_cache_hits_{name}"] = sum(cached) / sum(r.read_tokens for r in sampled)
        drafts = [record for record in valid if record.kind == "draft"]
        if teaches_feedback and drafts:
            numbers["ditto/share_taught"] = statistics.fmean(bool(record.teacher_prompt) for record in drafts)
        return numbers

    def context_gap(self) -> dict[str, float]:
        """Mean of log pi(y' | x, f) - log pi(y' | x) over refined sequences in the base context, summed over tokens."""
        refined, columns = self.is_measured("refined_base"), self.columns
        if columns is None or not any(refined):
            return {}
        gaps = columns.rollout_log_probs.values() - columns.old_log_probs.values()
        trained = per_token(refined, columns.mask) & columns.mask.values().bool()
        return {"ditto/context_logprob_gap": gaps[trained].sum().item() / sum(refined)}

    def kl_to_start(self) -> dict[str, float]:
        """Estimates of KL(pi || reference) per token, from the drafts: of the policy before the step's first update."""
        if self.columns is None or self.reference is None:
            return {}
        mask = self.columns.mask
        drafts = per_token(self.is_measured("draft"), mask) & mask.values().bool()
        if not drafts.any():
            return {}
        old, start = self.columns.old_log_probs.values()[drafts], self.reference.values()[drafts]
        return {
            "ditto/kl_start": kl_penalty(old, start, "k3").mean().item(),
            "ditto/log_ratio_start": (old - start).mean().item(),
        }

    def loss_columns(self, correction: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """The columns that `ditto.objectives.losses` reads of every row, jagged.

        Args:
            correction: further weights of all response tokens, of shape (all tokens,).
        """
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
            if self.style is not None:
                columns[STYLE] = self.style
            if any(loss.teacher >= 0 for loss in losses):
                columns[TEACHERS] = jagged([torch.tensor([loss.teacher]) for loss in losses])
            else:
                prompts = [record.teacher_prompt or [0] for record in self.records]
                columns[TEACHER_PROMPTS] = jagged([torch.tensor(ids, dtype=torch.int64) for ids in prompts])
        return columns


def group_metrics(counts: Counter[str]) -> dict[str, float]:
    """Count the groups and sequences of a step that have no learning signal, and what it saves on them.

    Args:
        counts: `groups` of the batch; `idle` ones, from which the objective learns nothing; `dropped` ones, which were
            replaced (`rollout/group_filter.py`), and their sampled tokens, `tokens_dropped`. With `algorithm.skip_idle`
            also the sequences without a forward pass, `skipped`, their `tokens_skipped`, and all `tokens` before.
    """
    numbers = {
        "ditto/groups": float(counts["groups"]),
        "ditto/groups_idle": float(counts["idle"]),
        "ditto/groups_dropped": float(counts["dropped"]),
        "ditto/tokens_dropped": float(counts["tokens_dropped"]),
    }
    if "skipped" in counts:
        numbers["ditto/sequences_skipped"] = float(counts["skipped"])
        numbers["ditto/share_tokens_skipped"] = counts["tokens_skipped"] / max(counts["tokens"], 1)
    return numbers
