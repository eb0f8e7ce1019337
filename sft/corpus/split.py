"""A split of the data, ready to train on: files found, rows indexed, text tokenised, order set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from sft.corpus.dataset import SequenceDataset
from sft.corpus.index import Shard, read_index
from sft.corpus.order import Order, Part
from sft.corpus.settings import SftDataSettings
from sft.corpus.sources import FileGroup, find_files, missing
from sft.corpus.store import ShardCounts, SourceCounts, TokenStore
from sft.corpus.tokenize import tokenise
from sft.encode.lengths import check_context
from sft.encode.row_encoder import RowEncoder, check_counts


@dataclass(frozen=True)
class Corpus:
    """A split.

    Attributes:
        dataset: the sequences, by number.
        order: the endless order of their numbers.
        sources: what became of the rows, by data_source.
        examples: one place for each reason why something was left out.
        groups: the files, as they were named, with their ratios.
    """

    dataset: SequenceDataset
    order: Order
    sources: Mapping[str, SourceCounts]
    examples: Mapping[str, str]
    groups: tuple[FileGroup, ...]

    @property
    def names(self) -> list[str]:
        """The sources by the number that a sequence carries."""
        return self.dataset.store.sources

    def lengths(self, sequences: np.ndarray) -> np.ndarray:
        """Tokens of sequences, by their numbers."""
        return self.dataset.store.records(sequences)["length"].astype(np.int64)


def open_corpus(
    settings: SftDataSettings, tokenizer: PreTrainedTokenizerBase, split: str, context: int | None = None
) -> Corpus | None:
    """Open a split, tokenising what is not tokenised yet. Any process may do so at any time.

    Args:
        settings: the config's section `data`.
        tokenizer: the model's, with its chat template.
        split: "train", or "val", of which there may be none.
        context: positions that the model has.

    Raises:
        SoulError: files, rows or limits that cannot be trained on; says where and what to do.
    """
    check_context(settings.max_length, context)
    # Both splits are looked at before one is tokenised: a mistake in the other's files would show hours later.
    found = {each: _indexed(settings, each) for each in ("train", "val")}
    groups, shards = found[split]
    if not groups:
        if split == "train":
            raise missing(settings.dir, split)
        return None
    made = tokenise(shards, RowEncoder(tokenizer, settings), settings.cache_dir)
    whole = ShardCounts()
    for _, counts in made:
        whole.add(counts)
    check_counts(whole.sources, whole.examples, settings)
    parts, first, shard_number = [], 0, 0
    for group in groups:
        of_group = made[shard_number : shard_number + len(group.files)]
        count = sum(counts.sequences for _, counts in of_group)
        parts.append(Part(first, count, group.ratio))
        first, shard_number = first + count, shard_number + len(group.files)
    store = TokenStore([folder for folder, _ in made], [counts for _, counts in made])
    return Corpus(SequenceDataset(store), Order(parts, settings.seed), whole.sources, whole.examples, tuple(groups))


def _indexed(settings: SftDataSettings, split: str) -> tuple[list[FileGroup], list[Shard]]:
    """The files of a split, and what their footers say."""
    groups = find_files(settings.files(split), settings.dir, split)
    shards = read_index([file for group in groups for file in group.files], settings.cache_dir)
    for shard in shards:
        shard.check()
    return groups, shards
