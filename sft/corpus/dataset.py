"""The sequences of a corpus as torch tensors, with the keys that verl's SFT trainer reads."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from sft.corpus.store import TokenStore


class SequenceDataset(Dataset):  # type: ignore[type-arg,misc,unused-ignore]
    """Sequences by number, read from the token store. The numbers come from the batches (sft/corpus/batches.py).

    The number `~n` (that is, `-1 - n`) gives the same sequence with an empty loss mask: ranks that have run out of
    sequences take part with such a filler, so that no token counts twice.
    """

    def __init__(self, store: TokenStore) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, sequence: int) -> dict[str, Any]:
        filler = sequence < 0
        ids, mask, source = self.store.read(~sequence if filler else sequence)
        input_ids, loss_mask = torch.from_numpy(ids), torch.from_numpy(mask)
        if filler:
            loss_mask.zero_()
        return {
            "input_ids": input_ids,
            "position_ids": torch.arange(len(ids), dtype=torch.int64),
            "loss_mask": loss_mask,
            "source": source,
        }
