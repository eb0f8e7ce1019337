"""Write into a step's traces what the trainer knows of their sequences: advantage, weight, log-probs, why masked.

The agent loop lists the sequences of a session in its trace (`rollout/agent_loop.py`); `SequenceRecord.place`
says which of them a row is. `note_plan` comes before the rows without a signal are dropped, `note_log_probs` once the
actor's log-probs are known.
"""

from collections.abc import Iterator

import torch

from ditto.batch.jagged import row_lengths
from ditto.batch.sequence_record import SequenceRecord
from ditto.batch.step_batch import StepBatch
from ditto.objectives.spec import Objective
from soul.record import SequenceSummary


def note_plan(step: StepBatch, objective: Objective, *, regularised: bool) -> None:
    """Advantage and weights of every sequence of the step, or why it is not trained.

    Args:
        regularised: the loss has a KL or an entropy term, which also trains sequences with advantage 0.
    """
    traces = {trace.session: trace for trace in step.traces}
    moved = {_group(record) for record in step.records if record.loss.advantage != 0}
    for _, record, summary in _summaries(step):
        loss = record.loss
        if loss.part >= 0:
            summary.advantage, summary.weight = loss.advantage, loss.weight
            traces[record.session].advantages[record.kind] = loss.advantage
        if loss.distill_weight:
            summary.distill_weight = loss.distill_weight
        if loss.learns or (regularised and loss.mean):
            continue
        if loss.part < 0 and record.refined:
            summary.masked = "not the best"
        elif loss.part < 0 and objective.distillation is not None:
            summary.masked = "no teacher"
        elif loss.part < 0 or loss.weight == 0:
            summary.masked = "zero weight"
        elif objective.policy_parts[int(loss.part)].compares == "group" and _group(record) not in moved:
            summary.masked = "zero spread"
        else:
            summary.masked = "zero advantage"


def note_correction(step: StepBatch, correction: torch.Tensor) -> None:
    """Weights with the correction for off-policy rollouts (`StepBatch.correction`)."""
    assert step.columns is not None
    factors = _row_means(correction, step.columns.mask)
    for row, _, summary in _summaries(step):
        if summary.weight is not None:
            summary.weight *= factors[row]
        if summary.distill_weight is not None:
            summary.distill_weight *= factors[row]


def note_log_probs(step: StepBatch) -> None:
    """Mean log-probs in the base context, before the step's first update; as sampled for unmeasured drafts."""
    assert step.columns is not None
    old = _row_means(step.columns.old_log_probs.values(), step.columns.mask)
    for row, record, summary in _summaries(step):
        if record.kind == "draft" or (record.kind == "refined_base" and step.is_measured("refined_base")[row]):
            summary.logp_base = old[row]


def _summaries(step: StepBatch) -> Iterator[tuple[int, SequenceRecord, SequenceSummary]]:
    """The rows that a trace lists, which padding and sessions without a trained sequence are not."""
    listed = {trace.session: trace.sequences for trace in step.traces}
    for row, record in enumerate(step.records):
        if record.place >= 0:
            yield row, record, listed[record.session][record.place]


def _group(record: SequenceRecord) -> tuple[str, float]:
    """The rows that are compared with this one: those of its prompt, in its part."""
    return record.prompt, record.loss.part


def _row_means(values: torch.Tensor, mask: torch.Tensor) -> list[float]:
    """The mean of each row's values (all response tokens,) over its sampled tokens; 0.0 for a row without any."""
    sampled, lengths = mask.values().to(values.dtype), row_lengths(mask).tolist()
    pairs = zip(values.split(lengths), sampled.split(lengths), strict=True)
    return [torch.dot(row, kept).item() / max(kept.sum().item(), 1.0) for row, kept in pairs]
