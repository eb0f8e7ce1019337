"""Open a split of the data for training: find its files, index the rows, tokenise the text, set the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerBase

from sft.corpus.columns import check_columns
from sft.corpus.dataset import SequenceDataset
from sft.corpus.index import Shard, read_index
from sft.corpus.order import Order, Part
from sft.corpus.row_encoder import RowEncoder, check_counts, role_rules, tokenizer_fingerprint
from sft.corpus.settings import SftDataSettings
from sft.corpus.sources import FileGroup, find_files, no_files
from sft.corpus.store import ShardCounts, SourceCounts, TokenStore
from sft.corpus.store_limits import folder_bytes, hold
from sft.corpus.tokenize import tokenise
from sft.encode.lengths import check_context


@dataclass(frozen=True)
class CorpusFile:
    """A file of a split.

    Attributes:
        ratio: passes per epoch, as text.
        digest: a hash of its sequences; equal digests mean equal token ids.
    """

    path: str
    ratio: str
    sequences: int
    digest: str


@dataclass(frozen=True)
class Corpus:
    """A split, ready to train on.

    Attributes:
        dataset: the sequences, by number.
        order: the endless order of the rows; `TokenStore.row_sequences` gives their sequences.
        sources: counts of rows, sequences and tokens by data_source.
        examples: for each reason why something was dropped, one place where it happened.
        folders: where the tokens of its shards lie.
        files: the files in their order.
        tokenizer: a hash of the tokenizer with its chat template.
    """

    dataset: SequenceDataset
    order: Order
    sources: Mapping[str, SourceCounts]
    examples: Mapping[str, str]
    folders: Sequence[Path]
    files: Sequence[CorpusFile]
    tokenizer: str

    @property
    def stored_bytes(self) -> int:
        """Bytes of its tokens on disk."""
        return sum(map(folder_bytes, self.folders))

    @property
    def names(self) -> list[str]:
        """The sources; a sequence carries the number of its source in this list."""
        return self.dataset.store.sources

    def lengths(self, sequences: np.ndarray) -> np.ndarray:
        """Number of tokens of each of these sequences."""
        return self.dataset.store.records(sequences)["length"].astype(np.int64)


def open_corpus(
    settings: SftDataSettings, tokenizer: PreTrainedTokenizerBase, split: str, context: int | None = None
) -> Corpus | None:
    """Open a split and tokenise the shards that are not tokenised yet. Any process may call this at any time.

    Args:
        settings: the config's section `data`.
        tokenizer: the model's, with its chat template.
        split: "train", or "val", which may be absent.
        context: the model's number of positions; None: unknown.

    Raises:
        SoulError: the files, rows or limits cannot be used for training; says where and what to do.
    """
    check_context(settings.max_length, context)
    # Check both splits before tokenising one: otherwise a mistake in the other's files would show hours later.
    indexed = {each: _indexed(settings, each) for each in ("train", "val")}
    groups, shards = indexed[split]
    if not groups:
        if split == "train":
            raise no_files(settings.dir, split)
        return None
    encoder = RowEncoder(tokenizer, settings)
    if any(shard.layout == "text" for _, found in indexed.values() for shard in found):
        _ = encoder.documents  # raises if there is no token that ends a document
    stored = tokenise(shards, encoder, settings.cache_dir)
    folders = [folder for folder, _ in stored]
    hold(settings.cache_dir, folders)
    total = ShardCounts()
    for _, counts in stored:
        total.add(counts)
    check_counts(total.sources, total.examples, settings)
    parts, files, first, shard_number = [], [], 0, 0
    for group in groups:
        group_shards = stored[shard_number : shard_number + len(group.files)]
        count = sum(counts.rows for _, counts in group_shards)
        parts.append(Part(first, count, group.ratio))
        for path, (_, counts) in zip(group.files, group_shards, strict=True):
            files.append(CorpusFile(str(path), str(group.ratio), counts.sequences, counts.digest))
        first, shard_number = first + count, shard_number + len(group.files)
    store = TokenStore(folders, [counts for _, counts in stored])
    order, fingerprint = Order(parts, settings.seed), tokenizer_fingerprint(tokenizer)
    return Corpus(SequenceDataset(store), order, total.sources, total.examples, folders, files, fingerprint)


def _indexed(settings: SftDataSettings, split: str) -> tuple[list[FileGroup], list[Shard]]:
    """The files of a split, and their entries in the index."""
    groups = find_files(settings.files(split), settings.dir, split)
    shards = read_index([file for group in groups for file in group.files], settings.cache_dir)
    for shard in shards:
        check_columns(shard.path, shard.contents.columns, settings.ignore_columns)
        _ = shard.layout  # raises if the file has the columns of no layout
    role_rules(settings).check((source, shard.path) for shard in shards for source in shard.sources)
    return groups, shards
