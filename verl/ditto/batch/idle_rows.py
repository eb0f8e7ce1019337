"""Leave the rows of a step that teach nothing out of its forward passes (`algorithm.skip_idle`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ditto.batch.group_counts import skipped_of
from ditto.batch.queue import KVBatchMeta
from ditto.batch.step_batch import StepBatch


def without_idle_rows(
    step: StepBatch, batch: KVBatchMeta, mini_batch: Sequence[int]
) -> tuple[list[int], KVBatchMeta, list[str]]:
    """The mini-batches and the batch of the rows that stay, and the keys of the others; counts them in the step.

    The others stay in the queue until the step ends: clearing them earlier would free their places for the padding rows
    that are added next.
    """
    kept = step.skip_idle(mini_batch)
    step.groups = replace(step.groups, **skipped_of([tag["seq_len"] for tag in batch.tags], kept))
    keys = [batch.keys[row] for row in kept]
    return [mini_batch[row] for row in kept], batch.select_keys(keys), sorted(set(batch.keys) - set(keys))
