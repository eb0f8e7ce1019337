"""verl's queue between agent loops and trainer (TransferQueue): all that this project touches of it.

Sequences lie in it under the key `{prompt}_{session}_{index}`, with columns (tokens, masks, log-probs) and tags
(lengths, model versions). The trainer moves keys and fetches columns by name. verl's `neo` branch replaces
TransferQueue: then this module is the one to change.
"""

import transfer_queue as tq
from transfer_queue import KVBatchMeta

__all__ = ["KVBatchMeta", "tq"]
