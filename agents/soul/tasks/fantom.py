"""FanToM: who knows what in a conversation that people join and leave (Kim et al., 2023).

One turn: an answer in `<answer>`, scored by rule:

    choice   a first- or second-order belief: the letter of the right one
    list     who can answer a question, or has a piece of information: all the right names and no others
    yes/no   the same for one person
    fact     token F1; the official evaluation reports these separately, and the builder makes no rows of them

The field `extra_info` holds what a list or yes/no question is about. "False", "She doesn't know it" and "Eve knows
this" are read as yes or no too. The benchmark's own code also reads the beginning of a word (it takes "Nobody told her"
for no), and does not read "Option B".
"""

import re
import string
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from soul.answers.extraction import names_given, tagged_answer, tagged_letter, undressed
from soul.judge import Judge
from soul.leaks.quotations import Choices
from soul.metrics.ngram import normalized_tokens, token_f1
from soul.one_turn import AnswerTask, letter_options, with_letter
from soul.prompts import load_prompt
from soul.row_fields import Listed, as_list, drop_empty_groups
from soul.task_types import Episode, GroupKey, Metric, NotBlank, Row, Strata, Verdict

Kind = Literal["choice", "list", "binary", "fact"]
_KINDS: dict[str, Kind] = {"multiple-choice": "choice", "list": "list", "binary": "binary"}
_INDEX = re.compile(r"\s*[0-9]{1,2}\s*")
_OFFICIAL_ID = re.compile(r"(\d+)-\d+(?:-\d+)*")  # conversation, part, set: "12-0-1"


class FanToMRow(Row):
    """One question about one conversation. The kind decides what `correct_answer` is: index, names, yes/no or text."""

    context: NotBlank
    question: NotBlank = Field(validation_alias=AliasChoices("complete_question", "question"))
    question_type: str
    correct_answer: int | list[str] | str
    wrong_answer: list[str] | str = ""
    answer_choices: Annotated[list[str], Listed] = []  # absent if the question itself lists them
    tom_type: str = ""
    missed_info_accessibility: str = ""
    set_id: Annotated[str, BeforeValidator(str)] = ""
    extra_info: str = ""

    @model_validator(mode="before")
    @classmethod
    def _indices_and_names(cls, record: Mapping[str, Any]) -> Any:
        question_type, gold = str(record.get("question_type", "")), record.get("correct_answer")
        # In a file that mixes kinds the whole column is text, so the index of a choice is text too.
        if question_type.endswith(":multiple-choice") and isinstance(gold, str) and _INDEX.fullmatch(gold):
            return {**record, "correct_answer": int(gold)}
        if question_type.endswith(":list"):
            answers = {key: record.get(key) for key in ("correct_answer", "wrong_answer")}
            return {**record, **{key: _names(value) for key, value in answers.items() if value is not None}}
        return record

    @property
    def official_id(self) -> re.Match[str] | None:
        """The official name of the question set, with its conversation as the first group; None for other names."""
        return _OFFICIAL_ID.fullmatch(self.set_id)

    @property
    def kind(self) -> Kind:
        """The kind of a question type such as "tom:belief:inaccessible:multiple-choice" or "fact".

        Raises:
            ValueError: an unknown type.
        """
        if self.question_type.startswith("fact"):
            return "fact"
        kind = _KINDS.get(self.question_type.rsplit(":", 1)[-1])
        if kind is None:
            raise ValueError(
                f"question_type: {self.question_type!r} is not fact, *:multiple-choice, *:list or *:binary"
            )
        return kind


def _names(value: Any) -> Any:
    """A list of names. "No names" is written as "", as a list or as null; a blank is not a name."""
    is_literal = not isinstance(value, str) or value.lstrip().startswith("[")
    names = as_list(value) if is_literal else [name.strip() for name in value.split(",")]
    return [name for name in names if str(name).strip()] if isinstance(names, list) else names


PROMPT = load_prompt("fantom/policy")
FORMS: dict[Kind, str] = {
    "choice": "Think step by step, then give only the letter in this format: <answer>LETTER</answer>",
    "list": "Think step by step, then give all the names and no others in this format: <answer>NAME, NAME</answer>",
    "binary": "Think step by step, then answer with yes or no: <answer>yes</answer> or <answer>no</answer>",
    "fact": "Think step by step, then give a short answer in this format: <answer>ANSWER</answer>",
}


UNLISTED_CHOICES = 4  # how many choices a question has if its own text lists them
# Characters. Short lines ("Absolutely, Jaiden!") occur in several conversations; lines this long occur in one only.
TELLING_LINE = 60
_ACCESS = ("accessible", "inaccessible")  # parts of the types of belief questions
_KNOWS = re.compile(r"^true\b|\bknows\b", re.IGNORECASE)
_KNOWS_NOT = re.compile(r"^false\b|\b(?:does not|doesn't) know\b", re.IGNORECASE)
_NO_PERSON = re.compile(r"\b(?:not|never|nobody|no one|nothing|nor|neither|n't)\b", re.IGNORECASE)


class FanToM(AnswerTask[FanToMRow]):
    """What does Veronica believe was said before she joined?"""

    name = "fantom"
    version = 4  # 3: "False" and "doesn't know" are read too; 4: without the benchmark's own reading as a metric
    row_type = FanToMRow
    headline = Metric("accuracy", source="paper, section 4 (Theory of Mind) and table 1; token F1 for facts")
    strata = Strata("question")
    critic = load_prompt("choice/critique_of_a_mind_reader", 3)
    vote = AnswerTask.answer_of

    def render(self, row: FanToMRow) -> str:
        extra = f"{row.extra_info.strip()}\n\n" if row.extra_info.strip() else ""
        options = f"\n{letter_options(row.answer_choices)}" if row.answer_choices else ""
        about = {"extra": extra, "question": row.question, "options": options, "form": FORMS[row.kind]}
        return PROMPT.fill(conversation=row.context, **about)

    def gold(self, row: FanToMRow) -> str:
        if row.kind == "choice" and row.answer_choices:
            return row.answer_choices[int(row.correct_answer)]  # type: ignore[arg-type]
        gold = row.correct_answer
        if row.kind == "choice":  # the question itself lists the options; `check` has validated the index
            return f"option {chr(ord('A') + int(gold))}"  # type: ignore[arg-type]
        return ", ".join(gold) if isinstance(gold, list) else str(gold)

    def target(self, row: FanToMRow) -> str:
        gold = row.correct_answer
        if row.kind == "choice":
            return with_letter(string.ascii_uppercase[int(gold)], _options(row))  # type: ignore[arg-type]
        if row.kind == "binary":
            return "yes" if _polarity(str(gold)) else "no"
        return ", ".join(sorted(set(gold))) if isinstance(gold, list) else str(gold)

    def given(self, row: FanToMRow, episode: Episode) -> str | None:
        vote = self.vote(row, episode)
        if vote is not None and row.kind == "choice":
            return with_letter(vote, _options(row))
        return vote and tagged_answer(episode.answer) if row.kind == "fact" else vote

    def check(self, row: FanToMRow) -> None:
        gold = row.correct_answer
        if row.kind == "choice":
            last = (len(row.answer_choices) or UNLISTED_CHOICES) - 1
            if isinstance(gold, bool) or not isinstance(gold, int) or not 0 <= gold <= last:
                raise ValueError(f"correct_answer: {gold!r} is not among the choices, an index from 0 to {last}")
        elif row.kind == "binary" and _polarity(str(gold)) is None:
            raise ValueError(f"correct_answer: {gold!r} is neither yes nor no")
        elif row.kind == "list" and (not isinstance(gold, list) or not gold):
            raise ValueError(f"correct_answer: {gold!r} is not a list of names")
        elif row.kind == "fact" and not re.search(r"\w", str(gold)):
            raise ValueError(f"correct_answer: {gold!r} contains no word")

    def secrets(self, row: FanToMRow) -> Sequence[str]:
        if row.kind == "choice":
            return (*row.answer_choices, self.gold(row)) if row.answer_choices else (" ",)
        if row.kind == "list":
            return tuple(row.correct_answer) if isinstance(row.correct_answer, list) else ()
        return ("yes", "no") if row.kind == "binary" else (str(row.correct_answer),)

    def group_keys(self, row: FanToMRow) -> Sequence[GroupKey]:
        # Excerpts of one conversation start and end at different lines, so each long line is a key.
        official = row.official_id
        lines = [line for line in row.context.split("\n") if len(line) >= TELLING_LINE] or [row.context]
        # A belief question names people and a subject; "Does Ann know this?" occurs in many conversations.
        belief = [GroupKey.from_text("question", row.question)] if row.question_type.startswith("tom:belief") else []
        return [
            *([GroupKey("conversation", official[1])] if official else []),
            *(GroupKey.from_text("conversation with the line", line) for line in lines),
            *belief,
        ]

    def choices(self, row: FanToMRow) -> Choices | None:
        return self.shown_choices(row, _options(row)) if row.kind == "choice" else None

    def groups(self, row: FanToMRow) -> Mapping[str, str]:
        parts = row.question_type.split(":")
        access = row.missed_info_accessibility or next((part for part in parts if part in _ACCESS), "")
        question = " ".join(part for part in parts if part not in ("tom", *_ACCESS))
        return drop_empty_groups({"question": question, "access": access, "order": row.tom_type})

    def read(self, row: FanToMRow, text: str, strict: bool) -> str | None:
        answer = tagged_answer(text)
        if answer is None:
            return None
        if row.kind == "choice":
            return tagged_letter(text, _options(row), strict=strict)
        if row.kind == "list":
            lists = (row.correct_answer, row.wrong_answer)
            names = {name for listed in lists if isinstance(listed, list) for name in listed}
            return ", ".join(sorted(names_given(answer, names, strict=strict))) or None
        if row.kind == "binary":
            polarity = _polarity(answer) if strict else _loose_polarity(undressed(answer))
            return {True: "yes", False: "no", None: None}[polarity]
        return " ".join(normalized_tokens(answer)) or None

    async def judge(self, row: FanToMRow, episode: Episode, judge: Judge) -> Verdict:
        answer = self.answer_of(row, episode)
        score = _score(row, answer) if answer is not None else 0.0
        metrics = {
            "accuracy": score,
            **self.reading_metrics(row, episode),
            f"accuracy_{row.kind}": score,
        }
        return Verdict(score, metrics)


def _options(row: FanToMRow) -> dict[str, str]:
    """Letter -> text; the texts are "" if the question itself lists its choices."""
    texts = row.answer_choices or [""] * UNLISTED_CHOICES
    return dict(zip(string.ascii_uppercase, texts, strict=False))


def _polarity(text: str) -> bool | None:
    """True for yes, False for no; None if the text says neither, both or "not yes". "Nobody" does not count as no."""
    yes, no = (re.search(rf"(?<!\bnot )\b{word}\b", text, re.IGNORECASE) is not None for word in ("yes", "no"))
    return yes if yes != no else None


def _loose_polarity(text: str) -> bool | None:
    """`_polarity`; for a text without yes and no, also what it says about truth or knowledge."""
    found = _polarity(text)
    if found is not None or re.search(r"\b(?:yes|no)\b", text, re.IGNORECASE):
        return found
    if _KNOWS_NOT.search(text):
        return None if _KNOWS.search(text) else False
    return True if _KNOWS.search(text) and not _NO_PERSON.search(text) else None


def _score(row: FanToMRow, answer: str) -> float:
    """The score, in [0, 1], of an answer as `FanToM.read` returns it."""
    gold = row.correct_answer
    if row.kind == "choice":
        return float(ord(answer) - ord("A") == gold)
    if row.kind == "list":
        assert isinstance(gold, list)
        return float(answer == ", ".join(sorted(set(gold))))
    if row.kind == "binary":
        return float(_polarity(answer) == _polarity(str(gold)))
    return token_f1(answer, str(gold))
