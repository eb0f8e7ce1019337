"""Documents for midtraining: all of a document is trained, and short ones share a sequence.

A document begins as the tokenizer begins a text (Llama's <|begin_of_text|>; Qwen has nothing) and ends with its end
token. It stays whole if a sequence can hold it, and is put into the fullest sequence with room. A longer one is cut;
each part repeats the last token of the part before, so that no token goes untrained. The places where documents begin
are kept with the sequence: attention and positions start again there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from sft.encode.sequence import EncodedSequence
from soul.errors import SoulError

OPEN_PACKS = 8  # sequences with room, at most: a bound on memory
PACK_DOCUMENTS = 1 << 15  # of a sequence, at most: the store counts them with 16 bits
# Tokens that end a text rather than a turn; chat models of these families have another `eos_token`.
TEXT_ENDS = ("<|endoftext|>", "<|end_of_text|>")


class BadDocumentEnd(SoulError):
    """There is no usable token for the end of a document."""


class DocumentTokenizer:
    """Token ids of documents, each with the tokens that begin and end a text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        known = tokenizer.get_added_vocab()
        token = next((name for name in TEXT_ENDS if name in known), tokenizer.eos_token)
        number = tokenizer.convert_tokens_to_ids(token) if token else None
        # Some models end a text with the token that stands for unknown words (SmolLM2, GPT-2).
        if number is None or (number == tokenizer.unk_token_id and token != tokenizer.unk_token):
            raise BadDocumentEnd(
                f"{tokenizer.name_or_path or 'the tokenizer'} has no token that ends a text: {token!r}. "
                "Set eos_token in its tokenizer_config.json."
            )
        self._end: int = number
        whole, bare = (self._backend.encode("a", add_special_tokens=special).ids for special in (True, False))
        first = next((place for place in range(len(whole)) if whole[place:][: len(bare)] == bare), 0)
        self._begin: list[int] = whole[:first]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each of several documents: tokenising them together costs less."""
        encoded = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [[*self._begin, *each.ids, self._end] for each in encoded]


@dataclass(frozen=True)
class _Pack:
    """Documents that will share a sequence, and the row of the first one."""

    row: int
    documents: list[list[int]]


class DocumentPacker:
    """Puts documents into sequences of at most `length` tokens. The sequences come out in a fixed order."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._open: list[_Pack] = []

    def add(self, document: list[int], row: int) -> Iterator[tuple[int, EncodedSequence]]:
        """Take the ids of a document; yield the sequences that are full, each with the row of its first document."""
        while len(document) > self.length:
            yield row, _sequence([document[: self.length]])
            document = document[self.length - 1 :]
        if len(document) < 2:  # the last token of an earlier part, or nothing: no token that could be predicted
            return
        sizes = [sum(map(len, pack.documents)) for pack in self._open]
        fitting = [
            number
            for number, size in enumerate(sizes)
            if size + len(document) <= self.length and len(self._open[number].documents) < PACK_DOCUMENTS
        ]
        if fitting:
            self._open[max(fitting, key=lambda number: sizes[number])].documents.append(document)
            return
        self._open.append(_Pack(row, [document]))
        if len(self._open) > OPEN_PACKS:
            full = self._open.pop(max(range(len(sizes)), key=lambda number: sizes[number]))
            yield full.row, _sequence(full.documents)

    def finish(self) -> Iterator[tuple[int, EncodedSequence]]:
        """Yield what is left."""
        for pack in self._open:
            yield pack.row, _sequence(pack.documents)
        self._open = []


def _sequence(documents: list[list[int]]) -> EncodedSequence:
    """One sequence of these documents. The first token of each has nothing before it, so it is not trained."""
    ids: list[int] = []
    starts, spans = [], []
    for document in documents:
        starts.append(len(ids))
        spans.append((len(ids) + 1, len(ids) + len(document)))
        ids += document
    return EncodedSequence(ids, spans, tuple(starts))
