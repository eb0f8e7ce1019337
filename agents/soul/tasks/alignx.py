"""AlignX: which of two responses does this user prefer? (Li et al., 2025)

The user is known by a self-description, by a profile of preferences, by earlier choices between two responses, by own
comments, or by several of these. One turn, A or B in `<answer>`, exact match; which response is A is drawn by the
row's index. Row schema: original code base, section 4.15. The five evaluation sets differ in what their rows hold and
have one class each, as metrics are counted by name.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import AliasChoices, Field, field_validator

from soul.one_turn import LetterTask
from soul.prompts import load_prompt
from soul.rows.parsing import Label, clean_text, drop_empty_groups, option_references, parse_literal, to_prose
from soul.task import Metric, NotBlank, Row

RULES = """\
You get to know a user of the internet. Then you see a post and two responses to it. Say which of the two this user \
likes better. Judge with this user's taste: what the user is like, wants, chose or wrote before decides, not which \
response is better in general or suits you."""

FORM = (
    "Think step by step about what this user cares for, then give the letter of the response in this form: "
    "<answer>A</answer> or <answer>B</answer>"
)

_NOUNS = ("one", "option", "response", "reply", "answer", "comment", "choice")
# With two responses, to point at one is to tell the answer.
_POINTERS = (
    *(f"{place} {noun}" for place in ("first", "second") for noun in _NOUNS),
    *option_references(("response", "reply", "comment"), "AB"),
)


class AlignXRow(Row):
    """One post with two responses, and what is known of the user."""

    raw_prompt: NotBlank = Field(validation_alias=AliasChoices("raw_prompt", "prompt"))
    chosen: NotBlank
    rejected: NotBlank
    demographic: str = Field(default="", validation_alias=AliasChoices("demographic", "Demographic Information"))
    profile: str = ""
    icl_pairs: list[dict[str, str]] = Field(
        default=[], validation_alias=AliasChoices("icl_pairs", "Pair-wise Comparative Feedback")
    )
    ugc: list[dict[str, str]] = Field(default=[], validation_alias=AliasChoices("ugc", "User-Generated Content"))
    n_icl: int | None = Field(default=None, ge=0)
    n_ugc: int | None = Field(default=None, ge=0)
    source: Label = ""  # "P-Soups_student_phd:12", file and record

    @field_validator("demographic", "profile", mode="before")
    @classmethod
    def _in_words(cls, value: Any) -> Any:
        return to_prose(value)

    @field_validator("icl_pairs", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        return _complete(value, ("chosen", "rejected"))

    @field_validator("ugc", mode="before")
    @classmethod
    def _comments(cls, value: Any) -> Any:
        return _complete(value, ("comment",))


def _complete(value: Any, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """The entries that have every needed text: in the source some are a character that prints nothing."""
    entries = parse_literal(value)
    if not isinstance(entries, list | tuple):
        raise ValueError(f"expected a list, got {type(entries).__name__}")
    texts = [
        {key: clean_text(entry.get(key)) for key in ("prompt", *needed)}
        for entry in entries
        if isinstance(entry, Mapping)
    ]
    return [entry for entry in texts if all(entry[key] for key in needed)]


class AlignX(LetterTask[AlignXRow]):
    """Somebody who likes short and blunt words: this response or that one?"""

    name = "alignx"
    row_type = AlignXRow
    headline = Metric("accuracy", source="model card (AlignX)")
    cuts = (("ugc", "start"), ("icl_pairs", "start"), ("demographic", "start"), ("profile", "start"))
    critic = load_prompt("alignx/critique", 2)
    shown: ClassVar[int] = 2  # earlier choices and comments that the policy sees, where the row does not say

    def render(self, row: AlignXRow, feedback_block: str) -> str:
        parts = {
            "The user in words": row.demographic.strip(),
            "What the user prefers": row.profile.strip(),
            "What the user chose before": "\n\n".join(_pair(pair) for pair in self.pairs(row)),
            "What the user wrote before": "\n\n".join(_comment(comment) for comment in self.comments(row)),
        }
        known = "".join(f"{title}:\n{text}\n\n" for title, text in parts.items() if text)
        options = "\n\n".join(f"Response {letter}:\n{text}" for letter, text in self.options(row).items())
        return (
            f"{RULES}\n\n{known}{feedback_block}"
            f"Question: Which response does this user prefer?\n\nPost:\n{row.raw_prompt}\n\n{options}\n\n{FORM}"
        )

    def pairs(self, row: AlignXRow) -> Sequence[Mapping[str, str]]:
        """The earlier choices that the policy sees."""
        return row.icl_pairs[: self.shown if row.n_icl is None else row.n_icl]

    def comments(self, row: AlignXRow) -> Sequence[Mapping[str, str]]:
        """The user's own comments that the policy sees."""
        return row.ugc[: self.shown if row.n_ugc is None else row.n_ugc]

    def options(self, row: AlignXRow) -> Mapping[str, str]:
        gold_first = self.gold(row) == "A"
        return dict(zip("AB", (row.chosen, row.rejected) if gold_first else (row.rejected, row.chosen), strict=True))

    def gold(self, row: AlignXRow) -> str:
        return random.Random(f"alignx:{row.index}").choice("AB")

    def groups(self, row: AlignXRow) -> Mapping[str, str]:
        known = {
            "description": row.demographic.strip() or row.profile.strip(),
            "choices": self.pairs(row),
            "comments": self.comments(row),
        }
        by = ", ".join(what for what, there in known.items() if there)
        return drop_empty_groups({"source": row.source.rpartition(":")[0], "user known by": by})

    def secrets(self, row: AlignXRow) -> Sequence[str]:
        return (row.chosen, row.rejected, *_POINTERS)


def _pair(pair: Mapping[str, str]) -> str:
    post = f"Post: {pair['prompt']}\n" if pair.get("prompt") else ""
    return f"{post}The user preferred: {pair['chosen']}\nThe user liked less: {pair['rejected']}"


def _comment(comment: Mapping[str, str]) -> str:
    post = f"Post: {comment['prompt']}\n" if comment.get("prompt") else ""
    return f"{post}The user's comment: {comment['comment']}"


class AlignXDemo(AlignX):
    """The user is known by a self-description."""

    name = "alignx_demo"


class AlignXPair(AlignX):
    """The user is known by earlier choices."""

    name = "alignx_pair"


class AlignXUGC(AlignX):
    """The user is known by own comments."""

    name = "alignx_ugc"


class AlignXArbitrary(AlignX):
    """The user is known by any of these, mixed."""

    name = "alignx_arbitrary"


class AlignXHistory16(AlignX):
    """The user is known by a history of sixteen entries."""

    name = "alignx_history16"
    shown = 16
