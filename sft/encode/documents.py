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


@dataclass(frozen=True)
class DocumentPiece:
    """A document or a piece of one; `begins` and `ends` tell whether it is the first and the last piece.

    Attributes:
        row: where it is in the file.
    """

    source: str
    row: int
    text: str
    begins: bool
    ends: bool


class DocumentTokenizer:
    """Token ids of documents, also of those that come in pieces."""

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

    def ids(self, pieces: Sequence[DocumentPiece]) -> list[list[int]]:
        """The ids of each of several pieces of documents: tokenising them together costs less."""
        encoded = self._backend.encode_batch_fast([piece.text for piece in pieces], add_special_tokens=False)
        return [
            [*(self._begin if piece.begins else ()), *each.ids, *([self._end] if piece.ends else ())]
            for piece, each in zip(pieces, encoded, strict=True)
        ]


@dataclass(frozen=True)
class _Pack:
    """Documents that will share a sequence, and the row of the first one."""

    row: int
    documents: list[list[int]]


class DocumentPacker:
    """Puts documents into sequences of at most `length` tokens. The sequences come out in a fixed order."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._rest: list[int] = []  # of the document that is being read
        self._row: int | None = None  # where that document begins
        self._open: list[_Pack] = []

    def add(self, ids: list[int], ends: bool, row: int) -> Iterator[tuple[int, EncodedSequence]]:
        """Take a piece of a document; yield the sequences that are full, each with the row of its first document.

        Args:
            row: where the piece is.
        """
        self._row = row if self._row is None else self._row
        self._rest += ids
        while len(self._rest) > self.length:
            yield self._row, _sequence([self._rest[: self.length]])
            self._rest = self._rest[self.length - 1 :]
        if ends:
            yield from self._close()

    def finish(self) -> Iterator[tuple[int, EncodedSequence]]:
        """Yield what is left."""
        yield from self._close()
        for pack in self._open:
            yield pack.row, _sequence(pack.documents)
        self._open = []

    def _close(self) -> Iterator[tuple[int, EncodedSequence]]:
        document, self._rest = self._rest, []
        row, self._row = self._row, None
        if len(document) < 2:  # the last token of an earlier part, or nothing: no token that could be predicted
            return
        assert row is not None  # it has tokens
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


def _sequence(documents: list[list[int]]) -> EncodedSequence:
    """One sequence of these documents. The first token of each has nothing before it, so it is not trained."""
    ids: list[int] = []
    starts, spans = [], []
    for document in documents:
        starts.append(len(ids))
        spans.append((len(ids) + 1, len(ids) + len(document)))
        ids += document
    return EncodedSequence(ids, spans, tuple(starts))
