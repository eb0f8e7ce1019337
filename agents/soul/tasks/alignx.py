"""AlignX: which of two responses does this user prefer? (Li et al., 2025)

A row describes the user by a self-description, a profile of preferences, earlier choices between two responses, earlier
comments, or several of these. One turn: A or B in `<answer>`, exact match. The row's index decides which response is A.
The five evaluation sets differ in what their rows contain. Each has its own class, because metrics are reported by task
name.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BeforeValidator, Field

from soul.one_turn import LetterTask, variant
from soul.prompts import load_prompt
from soul.row_fields import Label, Prose, clean_text, drop_empty_groups, option_references, parse_literal
from soul.task_types import Metric, NotBlank, Row

PROMPT = load_prompt("alignx/policy")
_NOUNS = ("one", "option", "response", "reply", "answer", "comment", "choice")
# With only two responses, pointing at either one gives the answer away.
_POINTERS = (
    *(f"{place} {noun}" for place in ("first", "second") for noun in _NOUNS),
    *option_references(("response", "reply", "comment"), "AB"),
)


def _with_texts(*needed: str) -> BeforeValidator:
    """Keeps the entries that have every needed text. In some source files a text is a single invisible character."""

    def complete(value: Any) -> list[dict[str, str]]:
        entries = parse_literal(value)
        if not isinstance(entries, list | tuple):
            raise ValueError(f"expected a list, got {type(entries).__name__}")
        objects = [entry for entry in entries if isinstance(entry, Mapping)]
        texts = [{key: clean_text(entry.get(key)) for key in ("prompt", *needed)} for entry in objects]
        return [entry for entry in texts if all(entry[key] for key in needed)]

    return BeforeValidator(complete)


Pairs = Annotated[list[dict[str, str]], _with_texts("chosen", "rejected")]
Comments = Annotated[list[dict[str, str]], _with_texts("comment")]


class AlignXRow(Row):
    """One post with two responses, and what is known about the user."""

    raw_prompt: NotBlank = Field(validation_alias=AliasChoices("raw_prompt", "prompt"))
    chosen: NotBlank
    rejected: NotBlank
    demographic: Prose = Field(default="", validation_alias=AliasChoices("demographic", "Demographic Information"))
    profile: Prose = ""
    icl_pairs: Pairs = Field(default=[], validation_alias=AliasChoices("icl_pairs", "Pair-wise Comparative Feedback"))
    ugc: Comments = Field(default=[], validation_alias=AliasChoices("ugc", "User-Generated Content"))
    n_icl: int | None = Field(default=None, ge=0)
    n_ugc: int | None = Field(default=None, ge=0)
    source: Label = ""  # file and record, as in "P-Soups_student_phd:12"


class AlignX(LetterTask[AlignXRow]):
    """Which of two responses would somebody with a taste for blunt words prefer?"""

    name = "alignx"
    version = 2  # 2: a profile is shown only to a user without a description
    row_type = AlignXRow
    headline = Metric("accuracy", source="model card (AlignX)")
    cuts = (("ugc", "start"), ("icl_pairs", "start"), ("demographic", "start"), ("profile", "start"))
    critic = load_prompt("alignx/critique", 3)
    shown: ClassVar[int] = 2  # earlier choices, and comments, that the policy sees if the row does not say how many

    def render(self, row: AlignXRow) -> str:
        # A profile is made from what else is known of the user, so it stands in for a missing description only.
        parts = {
            "About the user": row.demographic.strip(),
            "What the user prefers": "" if row.demographic.strip() else row.profile.strip(),
            "What the user chose before": "\n\n".join(
                _with_post(pair, f"The user preferred: {pair['chosen']}\nThe user liked less: {pair['rejected']}")
                for pair in self.pairs(row)
            ),
            "What the user wrote before": "\n\n".join(
                _with_post(comment, f"The user's comment: {comment['comment']}") for comment in self.comments(row)
            ),
        }
        known = "".join(f"{title}:\n{text}\n\n" for title, text in parts.items() if text)
        options = "\n\n".join(f"Response {letter}:\n{text}" for letter, text in self.options(row).items())
        return PROMPT.fill(known=known, post=row.raw_prompt, options=options)

    def pairs(self, row: AlignXRow) -> Sequence[Mapping[str, str]]:
        """The earlier choices that the policy sees."""
        return row.icl_pairs[: self.shown if row.n_icl is None else row.n_icl]

    def comments(self, row: AlignXRow) -> Sequence[Mapping[str, str]]:
        """The earlier comments of the user that the policy sees."""
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
        by = ", ".join(what for what, value in known.items() if value)
        return drop_empty_groups({"source": row.source.rpartition(":")[0], "user known by": by})

    def secrets(self, row: AlignXRow) -> Sequence[str]:
        return (row.chosen, row.rejected, *_POINTERS)


def _with_post(entry: Mapping[str, str], text: str) -> str:
    """What the user said of a post, after the post if there is one."""
    return f"Post: {entry['prompt']}\n{text}" if entry.get("prompt") else text


AlignXDemo = variant(AlignX, "AlignXDemo", "Rows with a self-description of the user.", name="alignx_demo")
AlignXPair = variant(AlignX, "AlignXPair", "Rows with earlier choices of the user.", name="alignx_pair")
AlignXUGC = variant(AlignX, "AlignXUGC", "Rows with earlier comments by the user.", name="alignx_ugc")
AlignXArbitrary = variant(AlignX, "AlignXArbitrary", "Rows with any mix of these.", name="alignx_arbitrary")
AlignXHistory16 = variant(
    AlignX, "AlignXHistory16", "Rows with a history of sixteen entries.", name="alignx_history16", shown=16
)
