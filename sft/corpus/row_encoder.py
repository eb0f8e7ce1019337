"""Encode the rows of a shard into the sequences that they train, and count everything that is dropped."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

from sft.corpus.sources import SftDataSettings
from sft.corpus.store import SequenceWriter
from sft.encode.conversation import Conversation, read_conversation
from sft.encode.documents import DocumentPacker, DocumentTokenizer
from sft.encode.layouts import Layout
from sft.encode.messages import BadConversation
from sft.encode.rendering import ChatEncoder, TemplateFailure, TrainedTurn
from sft.encode.sequence import EncodedSequence, TooLong, shorten
from sft.encode.train_roles import RoleRules, source_of
from sft.formats.reading import batches
from soul.chat.control_tokens import ControlTokens
from soul.errors import SoulError

BAD_ROWS = "bad_rows"
NO_TRAINED_TURN = "rows_without_trained_turn"
UNPROMPTED = "turns_without_prompt"
OVERLONG = "overlong_sequences"
TRUNCATED = "truncated_sequences"
EMPTY_DOCUMENTS = "empty_documents"
ESCAPED = "rows_with_escaped_control_tokens"
DOCUMENT = "document"  # the trained side of a document, for the plan
_TOGETHER = (64, 1 << 20)  # rows and characters that are tokenised together: more gains nothing, and takes memory


class EmptyCorpus(SoulError):
    """The files hold nothing to train on."""


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of everything in a tokenizer that affects a rendering or an id."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # left over from the last call, no property of the tokenizer
    backend.no_padding()
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    content = json.dumps([special, tokenizer.chat_template], sort_keys=True) + backend.to_str()
    return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True)
class _Row:
    """A row that is read and rendered; `problem` says why there is no conversation.

    `escaped`: its texts contained control tokens of the template.
    """

    where: str
    number: int
    source: str
    conversation: Conversation | None = None
    turns: list[TrainedTurn] = field(default_factory=list)
    problem: str = ""
    escaped: bool = False


@dataclass
class RowEncoder:
    """Encodes rows."""

    tokenizer: PreTrainedTokenizerBase
    settings: SftDataSettings

    @cached_property
    def chat(self) -> ChatEncoder:
        """The encoder of conversations, built on first use."""
        return ChatEncoder(self.tokenizer, self.settings.apply_chat_template_kwargs)

    @cached_property
    def documents(self) -> DocumentTokenizer:
        """The encoder of documents, built on first use."""
        return DocumentTokenizer(self.tokenizer)

    @cached_property
    def control(self) -> ControlTokens:
        """The tokens that no text of a row may contain, built on first use."""
        return ControlTokens(self.tokenizer)

    @property
    def rules(self) -> RoleRules:
        """The rules for the trained side of each source."""
        return RoleRules(self.settings.default_train_role)

    def key(self) -> str:
        """Identifies everything except the rows that determines the sequences: equal keys give equal sequences.

        `bad_rows` is not part of it: if you set bad_rows=drop after an error, all finished work stays valid.
        """
        settings = self.settings
        return json.dumps(
            [
                tokenizer_fingerprint(self.tokenizer),
                dict(settings.apply_chat_template_kwargs),
                settings.default_train_role,
                settings.max_length,
                settings.overlong,
            ],
            sort_keys=True,
        )

    def write(
        self, writer: SequenceWriter, rows: Iterator[tuple[int, Mapping[str, Any]]], layout: Layout, file: str
    ) -> None:
        """Encode numbered rows of a file into a writer."""
        if layout == "text":
            self._write_documents(writer, rows, file)
            return
        read = (self._read_row(record, layout, file, number) for number, record in rows)
        for batch in batches(read, lambda row: len(row.turns[-1].text) if row.turns else 0, *_TOGETHER):
            for row, encoded in zip(batch, self.chat.sequences([row.turns for row in batch]), strict=True):
                self._write_row(writer, row, encoded)

    def _read_row(self, record: Mapping[str, Any], layout: Layout, file: str, number: int) -> _Row:
        """Read and render a row."""
        where = f"{file}, row {number}"
        try:
            read = read_conversation(record, layout, self.rules, file, number)
            conversation = self._escaped(read)
            try:
                turns = self.chat.turns(conversation.messages, conversation.trained, conversation.tools)
            except TemplateFailure as error:
                raise TemplateFailure(f"{where}, {error}") from error
        except (BadConversation, TemplateFailure) as error:
            if self.settings.bad_rows == "error":
                raise
            return _Row(where, number, source_of(record.get("data_source")), problem=str(error))
        return _Row(where, number, read.source, conversation, turns, escaped=conversation is not read)

    def _escaped(self, conversation: Conversation) -> Conversation:
        """The conversation with look-alikes of control tokens; the same object if it contains none."""
        messages, tools = self.control.escape(conversation.messages), self.control.escape(conversation.tools)
        if (messages, tools) == (conversation.messages, conversation.tools):
            return conversation
        return replace(conversation, messages=messages, tools=tools)

    def _write_row(self, writer: SequenceWriter, row: _Row, encoded: Sequence[EncodedSequence]) -> None:
        source, where, counts = row.source, row.where, writer.counts.source(row.source)
        counts.rows += 1
        if row.conversation is None:
            self._leave_out(writer, source, BAD_ROWS, row.problem)
            return
        try:
            fitting = [shorten(each, self.settings.max_length, self.settings.overlong) for each in encoded]
        except TooLong as error:
            raise TooLong(f"{where}, {error}") from error
        counts.roles[row.conversation.trains] += 1
        if row.escaped:
            self._leave_out(writer, source, ESCAPED, where)
        unprompted = len(row.conversation.trained) - sum(len(each.spans) for each in encoded)
        if unprompted:
            self._leave_out(writer, source, UNPROMPTED, f"{where}: a first turn with nothing before it", unprompted)
        if not encoded:
            self._leave_out(writer, source, NO_TRAINED_TURN, f"{where}: no turn of the trained side")
        for whole, sequence in zip(encoded, fitting, strict=True):
            if sequence is not whole:
                reason = OVERLONG if sequence is None else TRUNCATED
                self._leave_out(writer, source, reason, f"{where}: {len(whole.ids):,} tokens")
        writer.add([sequence for sequence in fitting if sequence is not None], source, row.number)

    def _write_documents(
        self, writer: SequenceWriter, rows: Iterator[tuple[int, Mapping[str, Any]]], file: str
    ) -> None:
        packers: dict[str, DocumentPacker] = {}  # by source
        for documents in batches(self._documents(writer, rows, file), lambda document: len(document[2]), *_TOGETHER):
            encoded = self.documents.ids([text for _, _, text in documents])
            for (source, row, _), ids in zip(documents, encoded, strict=True):
                packer = packers.setdefault(source, DocumentPacker(self.settings.max_length))
                for first, sequence in packer.add(ids, row):
                    writer.add([sequence], source, first)
        for source, packer in packers.items():
            for first, sequence in packer.finish():
                writer.add([sequence], source, first)

    def _documents(
        self, writer: SequenceWriter, rows: Iterator[tuple[int, Mapping[str, Any]]], file: str
    ) -> Iterator[tuple[str, int, str]]:
        """Source, row and text of the documents, counted, without the empty ones."""
        for number, record in rows:
            source = source_of(record.get("data_source"))
            counts = writer.counts.source(source)
            counts.rows += 1
            counts.roles[DOCUMENT] += 1
            text = record.get("text")
            if not isinstance(text, str) or not text.strip():
                self._leave_out(writer, source, EMPTY_DOCUMENTS, f"{file}, row {number}: no text")
                continue
            if (escaped := self.control.escape(text)) != text:
                self._leave_out(writer, source, ESCAPED, f"{file}, row {number}")
            yield source, number, escaped

    def _leave_out(self, writer: SequenceWriter, source: str, reason: str, example: str, count: int = 1) -> None:
        writer.counts.source(source).left_out[reason] += count
        writer.counts.examples.setdefault(reason, example)


def check_counts(sources: Mapping[str, Any], examples: Mapping[str, str], settings: SftDataSettings) -> None:
    """Check what only the counts of the whole corpus show."""
    bad = sum(counts.left_out[BAD_ROWS] for counts in sources.values())
    if bad and settings.bad_rows == "error":
        raise BadConversation(f"{bad:,} bad rows, such as: {examples[BAD_ROWS]}")
    for name, counts in sources.items():
        if counts.rows and counts.left_out[NO_TRAINED_TURN] == counts.rows:
            raise BadConversation(
                f"source {name!r}: none of its {counts.rows:,} rows has a turn to train: {', '.join(counts.roles)} "
                f"({examples[NO_TRAINED_TURN]}). Name the other side in a column train_role, or "
                "leave its files out."
            )
    if not any(counts.sequences for counts in sources.values()):
        reasons = ", ".join(f"{reason}: {example}" for reason, example in examples.items()) or "the files have no rows"
        raise EmptyCorpus(
            f"no sequence is left to train ({reasons}). Check data.train_files, and data.max_prompt_length and "
            "the other limits of the section data."
        )
