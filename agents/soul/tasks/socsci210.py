"""SocSci210: how a participant of a social science experiment answered (Kolluri et al., 2025).

One turn: a number in `<answer>`. On an ordinal scale the score is 1 - |answer - participant's answer| / (max - min);
binary and categorical answers are right (1) or wrong (0).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from soul.answers.extraction import chosen_option, folded, introduced, tagged_answer, undressed
from soul.judge import Judge
from soul.one_turn import AnswerTask
from soul.prompts import load_prompt
from soul.row_fields import LowerCase, user_text
from soul.task_types import Episode, Metric, NotBlank, Row, Verdict

PROMPT = load_prompt("socsci210/policy")
# The source prompts ask for the bare number; we let the policy think first.
_ONLY_FIRST = re.compile(
    r"\b(?:please[ \t]+)?(?:only|just|simply)[ \t]+(return|respond|answer|reply|output|provide|give)\b", re.IGNORECASE
)
_ONLY_AFTER = re.compile(r"\b(return|respond|answer|reply|output|provide|give)[ \t]+only\b", re.IGNORECASE)
_NOTHING_ELSE = re.compile(r",?[ \t]*\b(?:and[ \t]+|with[ \t]+)?nothing[ \t]+else\b", re.IGNORECASE)

_NUMBER = re.compile(r"([+-]?[0-9]{1,9})(?:\.0*)?")  # "4", "4.", "4.0"
_LABEL = re.compile(
    r"(?<![\w.-])(-?[0-9]{1,3})\s*(?:=|:|\)|-|–|\()\s*([A-Za-z][^\n,;()=:]{0,60}?)"
    r"\s*(?=[\n,;().]|\Z|(?:to|and|or|through|until)?\s*-?[0-9]{1,3}\s*[=:(])"
)
_LONGEST_ANSWER = 200  # characters; a longer text in the tag is an essay
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LONGEST_SCALE = 101  # points, as from 0 to 100; the points of longer scales are not all redacted


class SocSci210Row(Row):
    """One participant's answer to one question."""

    prompt_text: NotBlank
    response: float = Field(allow_inf_nan=False)
    response_type: Annotated[Literal["ordinal", "binary", "categorical"], LowerCase] = "ordinal"
    r_min: float = Field(default=0.0, allow_inf_nan=False)
    r_max: float = Field(default=7.0, allow_inf_nan=False)  # 1 for binary questions

    @model_validator(mode="before")
    @classmethod
    def _find_text(cls, record: Mapping[str, Any]) -> Any:
        text = user_text(record)
        fields = {**record, "prompt_text": text} if text else dict(record)
        if fields.get("r_max") is None and str(fields.get("response_type")).lower() == "binary":
            fields["r_max"] = 1.0
        return fields

    @property
    def scale(self) -> range:
        """The whole numbers of the scale."""
        return range(int(self.r_min), int(self.r_max) + 1)

    @property
    def labels(self) -> dict[int, str]:
        """The points of the scale that the text names: number -> label."""
        return {number: label for number, label in labels_in(self.prompt_text).items() if number in self.scale}


class SocSci210(AnswerTask[SocSci210Row]):
    """How likely would you be to vote for this candidate, from 1 to 7?"""

    name = "socsci210"
    row_type = SocSci210Row
    headline = Metric("normalised_accuracy", source="model card (SocSci210)")
    better = {**AnswerTask.better, "exact": "higher"}
    critic = load_prompt("socsci210/critique", 3)
    vote = AnswerTask.answer_of

    def render(self, row: SocSci210Row) -> str:
        what, form = "the answer as a whole number, without any words,", "<answer>NUMBER</answer>"
        if row.response_type == "binary":
            what = "the answer, as a number or as yes or no,"
            form += ", <answer>yes</answer> or <answer>no</answer>"
        return PROMPT.fill(text=thinking_allowed(row.prompt_text), what=what, form=form)

    def gold(self, row: SocSci210Row) -> str:
        return _in_words(row, row.response)

    def given(self, row: SocSci210Row, episode: Episode) -> str | None:
        value = self.vote(row, episode)
        return None if value is None else _in_words(row, float(value))

    def check(self, row: SocSci210Row) -> None:
        if row.response_type != "ordinal":
            return
        if row.r_max <= row.r_min:
            raise ValueError(f"r_max: {row.r_max:g} is not above r_min, {row.r_min:g}")
        if not row.r_min <= row.response <= row.r_max:
            raise ValueError(f"response: {row.response:g} is outside the scale, {row.r_min:g} to {row.r_max:g}")

    def secrets(self, row: SocSci210Row) -> Sequence[str]:
        """Every point of the scale: redacting only the right one would give it away."""
        numbers = {int(row.response), *row.labels}
        if row.r_max - row.r_min < _LONGEST_SCALE:
            numbers |= set(row.scale)
        words = [_WORDS[number] for number in sorted(numbers) if 0 <= number < len(_WORDS)]
        yes_no = ("yes", "no") if row.response_type == "binary" else ()
        return (*map(str, sorted(numbers)), f"{row.response:g}", *words, *row.labels.values(), *yes_no)

    def groups(self, row: SocSci210Row) -> Mapping[str, str]:
        return {"response type": row.response_type}

    def read(self, row: SocSci210Row, text: str, strict: bool) -> str | None:
        answer = tagged_answer(text)
        if answer is None:
            return None
        value = _value(row, answer, str.strip)
        if value is None and not strict and len(answer) <= _LONGEST_ANSWER:
            value = _value(row, introduced(undressed(answer)), folded)
            if value is None:  # "5: very likely", if the text has that label
                step = chosen_option(answer, {str(n): label for n, label in row.labels.items()}, key=r"-?\d{1,3}")
                value = float(step) if step is not None else None
        return None if value is None else str(value)

    async def judge(self, row: SocSci210Row, episode: Episode, judge: Judge) -> Verdict:
        answer = self.answer_of(row, episode)
        value = None if answer is None else float(answer)
        score = _score(row, value) if value is not None else 0.0
        name = self.headline.name
        metrics = {
            name: score,
            "exact": float(value is not None and value == row.response),
            **self.reading_metrics(row, episode),
            f"{name}_{row.response_type}": score,
        }
        return Verdict(score, metrics)


def _in_words(row: SocSci210Row, value: float) -> str:
    """ "2 (rather unlikely)"; only the number if the text does not name this point."""
    label = row.labels.get(int(value)) if value.is_integer() else None
    return f"{value:g} ({label})" if label else f"{value:g}"


def thinking_allowed(text: str) -> str:
    """Remove from the text the demand to say nothing but the answer."""
    text = _ONLY_FIRST.sub(lambda match: f"Think first, then {match.group(1).lower()}", text)
    text = _ONLY_AFTER.sub(lambda match: match.group(1), text)
    return _NOTHING_ELSE.sub("", text)


def labels_in(text: str) -> dict[int, str]:
    """The points of a scale that a text names: "1 = not at all", "(2) somewhat", "3: very"."""
    return {int(number): label.strip() for number, label in _LABEL.findall(text)}


def _value(row: SocSci210Row, answer: str, bare: Callable[[str], str]) -> float | None:
    """The number in an answer; for binary questions also yes and no. `bare` strips what may surround it."""
    answer = bare(answer)
    if number := _NUMBER.fullmatch(answer):
        return float(number.group(1))
    word = answer.strip(" .!").lower()
    if row.response_type != "binary" or word not in ("yes", "no"):
        return None
    # Some studies say in the text that 1 is yes and 2 is no; otherwise no is the lower number.
    named = [number for number, label in row.labels.items() if re.match(rf"{word}\b", label.lower())]
    if len(named) == 1:
        return float(named[0])
    return row.r_max if word == "yes" else row.r_min


def _score(row: SocSci210Row, value: float) -> float:
    """The score in [0, 1]; an ordinal answer beyond the scale counts as its nearest end."""
    if row.response_type != "ordinal":
        return float(value == row.response)
    value = min(max(value, row.r_min), row.r_max)
    return 1.0 - abs(value - row.response) / (row.r_max - row.r_min)
