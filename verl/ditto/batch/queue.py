"""verl's queue between agent loops and trainer (TransferQueue): everything that this project uses of it.

The queue stores sequences under the key `{prompt}_{session}_{index}`, with columns (tokens, masks, log-probs) and tags
(lengths, model versions). The trainer passes keys around and fetches columns by name. verl's `neo` branch replaces
TransferQueue; only this module will have to change.
"""

from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

__all__ = ["KVBatchMeta", "drop_trained_rows", "fetch", "put_columns", "tq"]


def fetch(batch: KVBatchMeta, *names: str) -> Any:
    """These columns of the batch's rows."""
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))


def put_columns(batch: KVBatchMeta, **columns: torch.Tensor) -> None:
    """Add columns to the batch's rows, for the workers of the update too."""
    fields = TensorDict(columns, batch_size=len(batch))
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
    batch.fields = list(dict.fromkeys([*(batch.fields or []), *columns]))


def drop_trained_rows(partition: str = "train") -> None:
    """Remove rows whose prompt is no longer in the queue: a checkpoint of the queue still holds those just trained."""
    items = (tq.kv_list(partition) or {}).get(partition, {})
    prompts = {key for key, tag in items.items() if tag.get("is_prompt")}
    trained = [key for key in items if key not in prompts and key.split("_", 1)[0] not in prompts]
    if trained:
        tq.kv_clear(keys=trained, partition_id=partition)
