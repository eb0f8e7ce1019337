"""Open a split of the data for training: find its files, index the rows, tokenise the text, set the order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from sft.corpus.order import Order, Part
from sft.corpus.row_encoder import RowEncoder, check_counts, tokenizer_fingerprint
from sft.corpus.sources import SftDataSettings, find_files, no_files
from sft.corpus.store import ShardCounts, SourceCounts, TokenStore, complete
from sft.corpus.tokenize import tokenise, tokens_folder
from sft.encode.layouts import check_columns, find_layout
from sft.encode.sequence import check_context
from sft.formats.reading import BadShard, columns_of


@dataclass(frozen=True)
class CorpusFile:
    """A file of a split."""

    path: str
    ratio: str  # passes per epoch
    sequences: int
    digest: str  # a hash of its sequences; equal digests mean equal token ids


@dataclass(frozen=True)
class Corpus:
    """A split, ready to train on.

    Attributes:
        dataset: the sequences, by number.
        order: the endless order of the rows; `dataset.row_sequences` gives their sequences.
        sources: counts of rows, sequences and tokens by data_source.
        examples: for each reason why something was dropped, one place where it happened.
        stored_bytes: size of its tokens on disk.
        files: the files in their order.
        tokenizer: a hash of the tokenizer with its chat template.
    """

    dataset: TokenStore
    order: Order
    sources: Mapping[str, SourceCounts]
    examples: Mapping[str, str]
    stored_bytes: int
    files: Sequence[CorpusFile]
    tokenizer: str

    @property
    def names(self) -> list[str]:
        """The sources; a sequence carries the number of its source in this list."""
        return self.dataset.sources


def open_corpus(
    settings: SftDataSettings, tokenizer: PreTrainedTokenizerBase, split: str, context: int | None = None
) -> Corpus | None:
    """Open a split and tokenise the shards that are not tokenised yet. Any process may call this at any time.

    Args:
        split: "train", or "val", which may be absent.
        context: the model's number of positions; None: unknown.
    """
    check_context(settings.max_length, context)
    encoder = RowEncoder(tokenizer, settings)
    # Check both splits before tokenising one: otherwise a mistake in the other's files would show hours later.
    groups = {each: find_files(settings.files(each), settings.dir, each) for each in ("train", "val")}
    _check_files([file for each in groups.values() for group in each for file in group.files], encoder)
    if not groups[split]:
        if split == "train":
            raise no_files(settings.dir, split)
        return None
    stored = tokenise([file for group in groups[split] for file in group.files], encoder, settings.cache_dir)
    total = ShardCounts()
    for _, counts in stored:
        total.add(counts)
    check_counts(total.sources, total.examples, settings)
    parts, files, first = [], list[CorpusFile](), 0
    for group in groups[split]:
        of_group = [counts for _, counts in stored[len(files) :][: len(group.files)]]
        parts.append(Part(first, sum(counts.rows for counts in of_group), group.ratio))
        first += parts[-1].count
        for path, counts in zip(group.files, of_group, strict=True):
            files.append(CorpusFile(str(path), str(group.ratio), counts.sequences, counts.digest))
    store = TokenStore([folder for folder, _ in stored], [counts for _, counts in stored])
    size = sum(counts.bytes for _, counts in stored)
    order, fingerprint = Order(parts, settings.seed), tokenizer_fingerprint(tokenizer)
    return Corpus(store, order, total.sources, total.examples, size, files, fingerprint)


def _check_files(files: Sequence[Path], encoder: RowEncoder) -> None:
    """Check the columns of the files that are not tokenised yet."""
    key, cache_dir = encoder.key(), encoder.settings.cache_dir
    for file in files:
        if not file.is_file():
            raise BadShard(f"{file}: there is no such file. Check the path and its permissions.")
        if complete(tokens_folder(file, key, cache_dir)):
            continue
        columns = columns_of(file)
        check_columns(str(file), columns)
        if find_layout(columns, str(file)) == "text":
            _ = encoder.documents  # raises if there is no token that ends a document
