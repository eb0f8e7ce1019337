"""verl's queue between agent loops and trainer (TransferQueue): everything that this project uses of it.

The queue stores sequences under the key `{prompt}_{session}_{index}`, with columns (tokens, masks, log-probs) and tags
(lengths, model versions). The trainer passes keys around and fetches columns by name. verl's `neo` branch replaces
TransferQueue; only this module will have to change.
"""

import transfer_queue as tq
from transfer_queue import KVBatchMeta

__all__ = ["KVBatchMeta", "tq"]
