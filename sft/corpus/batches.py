"""The sequences that each rank gets at each step. The step is the only state: a resumed run needs nothing else.

A step has the same rows for any number of ranks, each with all its sequences: a batch counts rows. Each rank gets the
same number of sequences and nearly the same number of tokens (verl's balancing, by the lengths in the store). If the
sequences cannot be divided evenly among the ranks, fillers without any trained token complete them (`TokenStore`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

from sft.corpus.split import Corpus
from soul.errors import BadSettings


class StepBatches(Sampler[list[int]]):
    """A batch sampler that yields this rank's part of each step.

    Args:
        batch_size: rows per step, over all ranks.
        first_step: number of steps that are done already; last_step: of the whole training.
    """

    def __init__(self, corpus: Corpus, batch_size: int, rank: int, ranks: int, first_step: int, last_step: int) -> None:
        if batch_size % ranks:
            raise BadSettings(
                f"data.train_batch_size={batch_size} cannot be divided evenly among {ranks} ranks. Use a "
                f"multiple of {ranks}."
            )
        self.corpus, self.batch_size = corpus, batch_size
        self.rank, self.ranks = rank, ranks
        self.steps = range(first_step, last_step)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[int]]:
        for step in self.steps:
            rows = self.corpus.order.step(step, self.batch_size)
            yield share(self.corpus.dataset.row_sequences(rows), self.corpus, self.rank, self.ranks)


class ValidationBatches(Sampler[list[int]]):
    """A batch sampler over a validation split: every sequence once, source by source, each batch from one source.

    A ratio below 1 takes that part of its files' rows, always the same one; a ratio above 1 takes them once.
    """

    def __init__(self, corpus: Corpus, batch_size: int, rank: int, ranks: int) -> None:
        self.corpus, self.rank, self.ranks = corpus, rank, ranks
        size = -(-batch_size // ranks) * ranks
        wanted = corpus.dataset.row_sequences(np.unique(corpus.order.epoch_rows(0)))
        self._batches: list[np.ndarray] = []
        self.sources: list[str] = []  # of each batch
        for name, sequences in zip(corpus.names, corpus.dataset.sequences_by_source(), strict=True):
            chosen = np.intersect1d(sequences, wanted, assume_unique=True)
            for start in range(0, len(chosen), size):
                self._batches.append(chosen[start : start + size])
                self.sources.append(name)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._batches:
            yield share(batch, self.corpus, self.rank, self.ranks)


def share(sequences: np.ndarray, corpus: Corpus, rank: int, ranks: int) -> list[int]:
    """A rank's part of the sequences: equal in number, with fillers if they do not divide evenly, similar in tokens."""
    if ranks == 1:
        return [int(sequence) for sequence in sequences]
    lengths = corpus.dataset.lengths[sequences].astype(np.int64)
    shortest = np.argsort(lengths, kind="stable")
    added: np.ndarray = np.resize(shortest, -len(sequences) % ranks)
    numbers = np.concatenate([sequences, ~sequences[added]])  # ~n: sequence n without any trained token
    sizes = [*lengths.tolist(), *lengths[added].tolist()]
    parts: Sequence[Sequence[int]] = get_seqlen_balanced_partitions(sizes, ranks, equal_size=True)
    return [int(numbers[place]) for place in parts[rank]]
