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
        stored = self.store.read(~sequence if filler else sequence)
        loss_mask = torch.from_numpy(stored.mask)
        if filler:
            loss_mask.zero_()
        return {
            "input_ids": torch.from_numpy(stored.ids),
            "position_ids": torch.from_numpy(stored.positions),
            "loss_mask": loss_mask,
            "source": stored.source,
        }
