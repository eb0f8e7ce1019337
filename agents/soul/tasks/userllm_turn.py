"""Rows and turns of UserLLM, the counts that its metrics need, and the metrics of a whole set."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AliasChoices, BeforeValidator, Field, field_validator, model_validator

from soul.answers.thinking import spoken_as_user
from soul.judge.call.untrusted import contentless
from soul.leaks.quotations import runs
from soul.metrics.set_metrics import Edge, Outcome, Ratio, SetMetric, jaccard_pairs
from soul.row_fields import Label, chat_turns, listed_texts
from soul.task_types import NotBlank, Row, Scored

Source = Literal["commonsense_qa", "natural_questions", "prism"]

_INTENTS = ("intent", "intent_summary", "opening_prompt", "question")  # in this order
_OWN_WORDS = ("opening_prompt", "question")  # in a prism row these are the person's own message, not an intent
# The form of published intents: "You are a user chatting with an assistant language model to get travel advice."
_FIXED_PREFIX = re.compile(r"you are a user chatting with an assistant language model to\b[\s:\u2014-]*", re.IGNORECASE)
_SPEAKERS = {"user": "User", "human": "User"}
_TURN = re.compile(r"^(User|Assistant):", re.MULTILINE)
_MARKED_TURN = re.compile(r"^<(user|assistant)>:", re.MULTILINE)  # as the original writes it


class UserLLMRow(Row):
    """The user's intent, and the conversation so far ("" at its start)."""

    source: Source
    intent: NotBlank = Field(validation_alias=AliasChoices(*_INTENTS))
    conversation_history: str = ""
    assistant_suggestion_turn: str = ""  # natural_questions: the assistant's proposal, if the history lacks it
    question: str = ""
    choices: Annotated[tuple[str, ...], BeforeValidator(listed_texts)] = ()  # commonsense_qa: the texts of the options
    is_last_turn: bool = False  # prism
    group: Label = ""  # an id of the conversation or of the question
    user_id: Label = ""  # prism

    @model_validator(mode="before")
    @classmethod
    def _drop_blank_intents(cls, record: Mapping[str, Any]) -> Any:
        blank = [key for key in _INTENTS if isinstance(record.get(key, ""), str) and not record.get(key, "").strip()]
        kept = {key: value for key, value in record.items() if key not in blank and value is not None}
        known = [key for key in _INTENTS if key in kept]
        if "prism" in str(kept.get("source", "")).lower() and known and set(known) <= set(_OWN_WORDS):
            raise ValueError(
                f"intent: this row of prism has only {known[0]}, which is the person's own message; write high-level "
                "intents with `python -m data.userllm intents`"
            )
        given = kept[known[0]] if known else None
        if isinstance(given, str):
            given = _FIXED_PREFIX.split(given, maxsplit=1)[-1] or given
        return kept if given is None else kept | {"intent": given}

    @field_validator("source", mode="before")
    @classmethod
    def _prism_by_any_name(cls, value: Any) -> Any:
        return "prism" if isinstance(value, str) and "prism" in value.lower() else value

    @field_validator("conversation_history", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if (turns := chat_turns(value)) is not None:
            return "\n".join(f"{_SPEAKERS.get(role, 'Assistant')}: {text}" for role, text in turns)
        marked = isinstance(value, str)
        return _MARKED_TURN.sub(lambda turn: f"{turn[1].capitalize()}:", value.strip()) if marked else value

    @property
    def own_words(self) -> list[str]:
        """The words of the row that are the person's own: intents, question and turns so far."""
        turns = _TURN.split(self.conversation)  # text before the first speaker, then speaker and text in turn
        said = [text for speaker, text in zip(turns[1::2], turns[2::2], strict=True) if speaker == "User"]
        return [self.intent, self.question, ", ".join(self.choices), *said]

    @property
    def conversation(self) -> str:
        """The conversation so far, with the assistant's proposal at its end."""
        proposal = self.assistant_suggestion_turn.strip()
        if not proposal or proposal in self.conversation_history:
            return self.conversation_history
        return f"{self.conversation_history}\nAssistant: {proposal}".strip()


END = "<|endconversation|>"
_END = re.compile(re.escape(END), re.IGNORECASE)
_GARBLED_END = re.compile(r"[<\[({|][|/\s]{0,3}end[\s_-]?(?:of[\s_-]?)?conversation[|/\s]{0,3}[>\])}|]", re.IGNORECASE)
_ECHO_WORDS, _LOOP_WORDS = 10, 4
_TOKEN = re.compile(r"\w+|[^\w\s]")
# The words that the original leaves out of the overlap; others, such as "not" or "please", count.
STOP_WORDS = frozenset(
    """
    a an the this that these i me my we us our you your it its they them their there
    are is was were be can could do does did had has have might should will would
    how what when where which who why and as at but by for from if in into of on or so then to with
    """.split()
)
_LONG_TURN = 20  # a shorter turn may repeat itself, as in "no no no no"


class Turn(NamedTuple):
    """The text of a turn, and whether the turn ends the conversation."""

    text: str
    ends: bool

    @property
    def only_ends(self) -> bool:
        """Return True if the turn ends the conversation and has no text."""
        return self.ends and contentless(self.text)


def spoken(text: str) -> Turn:
    """The policy's turn without think block, label and end token. What follows the end token is not said."""
    said, *rest = _END.split(spoken_as_user(text), maxsplit=1)
    return Turn(said.strip(), bool(rest))


def garbled_end(text: str) -> bool:
    """True if the policy tried to end the conversation without the end token, as in "[end conversation]"."""
    turn = spoken_as_user(text)
    return _END.search(turn) is None and _GARBLED_END.search(turn) is not None


def echoes(turn: str, prompt: str, own: Sequence[str]) -> bool:
    """True if a turn repeats ten words in a row of its prompt that are not the person's own.

    Args:
        own: the parts of the prompt that the person may repeat: the question, what the person said before.
    """
    allowed = {run for text in own for run in _runs(text, _ECHO_WORDS)}
    return any(run not in allowed for run in _runs(turn, _ECHO_WORDS) & _runs(prompt, _ECHO_WORDS))


def loops(turn: str) -> bool:
    """True if a long turn repeats itself: fewer than two in five of its runs of four words are new."""
    total = len(normalized(turn).split()) - _LOOP_WORDS + 1
    return total >= _LONG_TURN and len(_runs(turn, _LOOP_WORDS)) < 0.4 * total


def _runs(text: str, size: int) -> set[tuple[str, ...]]:
    return set(runs(normalized(text).split(), size))


def turn_tokens(text: str) -> set[str]:
    """The different tokens of a text in lower case: words, and single punctuation marks and symbols."""
    found = _TOKEN.findall(text.lower())
    return {token for token in found if token[0].isalnum() or unicodedata.category(token[0])[0] in "PS"}


def _telling(text: str) -> set[str]:
    return {token for token in turn_tokens(text) - STOP_WORDS if token.isalnum()}


def intent_overlap(intent: str, turn: str) -> float:
    """The share of the turn's different words, without stop words, that also occur in the intent; 0 if it has none."""
    said = _telling(turn)
    return len(said & _telling(intent)) / len(said) if said else 0.0


def choices_mentioned(choices: Sequence[str], turn: str) -> tuple[int, int]:
    """The number of different options that a turn mentions, and the number of different options.

    An option is mentioned if its words occur in the turn, in a row, ignoring case and punctuation.
    """
    options, text = {normalized(choice) for choice in choices}, f" {normalized(turn)} "
    return sum(f" {option} " in text for option in options), len(options)


def normalized(text: str) -> str:
    """The text as options are compared: lower case, words and digits with single spaces between them."""
    return " ".join(re.sub(r"[\W_]+", " ", text.lower()).split())


F1 = "termination_f1"
MEANS = ("role_adherence", "intent_adherence", "intent_decomposition", "human_likeness")


def userllm_set_metrics(rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
    """The metrics of a set (see `Task.set_metrics`).

    The rows decide which metrics are defined: termination F1 needs a true last turn, diversity two first turns.
    """
    shares = [_shares(outcome.row, outcome.scored) for outcome in outcomes]
    any_last = any(outcome.row.source == "prism" and outcome.row.is_last_turn for outcome in outcomes)
    first = [_first_turn(outcome.row, outcome.scored) for outcome in outcomes]
    return (
        *(
            Ratio.from_outcomes(name, rows, outcomes, [share.get(name) for share in shares])
            for name in (*MEANS, *((F1,) if any_last else ()))
        ),
        jaccard_pairs("first_turn_diversity", outcomes, first),
    )


def _shares(row: UserLLMRow, scored: Scored | Edge) -> dict[str, tuple[float, float]]:
    """The contribution of one episode to the metrics of a set: metric -> (numerator, denominator).

    If the verdict lacks a metric of the row, the score is 0: the episode has no text to judge.
    """
    if isinstance(scored, str):
        value = float(scored == "best")
        ends = row.is_last_turn == (scored == "best")
        return {name: (value, 1.0) for name in _means(row)} | _f1(row, ends)
    metrics = scored.verdict.metrics
    if row.source != "prism":
        return {name: (metrics.get(name, 0.0), 1.0) for name in _means(row)}
    turn = spoken(scored.episode.answer)
    if _rightly_silent(row, turn):
        return _f1(row, turn.ends)
    return {
        "intent_decomposition": (1 - metrics.get("intent_overlap", 1.0), 1.0),
        "human_likeness": (metrics.get("human_likeness", 0.0), 1.0),
    } | _f1(row, turn.ends)


def _means(row: UserLLMRow) -> Sequence[str]:
    """The metrics that average over rows like this one."""
    if row.source == "prism":
        return ("intent_decomposition", "human_likeness")
    return ("role_adherence",) if row.source == "commonsense_qa" else ("intent_adherence",)


def _f1(row: UserLLMRow, ends: bool) -> dict[str, tuple[float, float]]:
    """The terms of a prism row in F1 = 2 tp / (2 tp + fp + fn), as (numerator, denominator)."""
    if row.source != "prism":
        return {}
    return {F1: (2.0 * (ends and row.is_last_turn), float(ends + row.is_last_turn))}


def _first_turn(row: UserLLMRow, scored: Scored | Edge) -> AbstractSet[str] | Edge | None:
    """The tokens of a first turn of prism, an empty set if it has no text; None if the row has no such turn."""
    if row.source != "prism" or row.conversation:
        return None
    if isinstance(scored, str):
        return scored
    turn = spoken(scored.episode.answer)
    if contentless(turn.text):
        return None if _rightly_silent(row, turn) else frozenset()
    return turn_tokens(turn.text)


def _rightly_silent(row: UserLLMRow, turn: Turn) -> bool:
    """Return True if the turn is the end token alone, on the true last turn of a prism conversation."""
    return row.is_last_turn and turn.only_ends
