"""UserLLM: write one message as the user of an AI assistant (Naous et al., 2025); three kinds of rows.

    commonsense_qa      The user asked a question with options, and the assistant asks back for the answer. Role
                        adherence: a turn that mentions no option, or all of them, stays in the role (1); else 0.
    natural_questions   The assistant does not know and proposes something else. Intent adherence: the judge says that
                        the user refused (1) or accepted (0).
    prism               An open conversation. Intent decomposition: 1 - the share of the turn's content words that the
                        intent has too. Termination: whether the turn ended the conversation if and only if it is the
                        last one. Human-likeness: by an AI detector.

The score of a set is the paper's: the plain mean of six metrics, each over the rows that it concerns. These are role
adherence, intent adherence, intent decomposition, human-likeness, the F1 of ending the conversation, and the diversity
of first turns. A metric without rows in the set (no first turns, no last turns) is left out, and results.json says
which are in. Two of the six exist for a whole set only, so the score is not the mean of the episodes' rewards.

The reward of one episode is for training: role adherence, intent adherence, or the mean of the scores that a single
prism turn has. It cannot penalise a policy that says the same thing in every conversation; the score of a set does.

An intent is a high-level sentence, never the user's own words (`python -m data.userllm intents` writes them). The
detector is a judge (the paper's Pangram is a paid service); `UserLLM(detector="package.module:function")` takes
another. Where paper and original code differ, the paper holds (C.10): intent overlap counts against the turn, and all
options are a repeated question.

A prism turn may be the end token alone. On a true last turn that is right: the reward is 1, and there are no words to
be scored for diversity, decomposition or human-likeness. On any other turn it is wrong, and scores 0 in all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal, Protocol, cast

from pydantic import AliasChoices, BaseModel, Field, field_validator, model_validator

from soul.judge import Judge, Role
from soul.judge.call.untrusted import require_content
from soul.message import Message
from soul.metrics.lexical import jaccard_diversity, words
from soul.metrics.set_metrics import Outcome, SetMetric
from soul.one_turn import feedback_paragraph
from soul.policy import Players
from soul.prompts import Prompt, load_prompt
from soul.rows.parsing import Label, as_list
from soul.task import Episode, GroupKey, Metric, NotBlank, Row, Scored, Strata, Task, Verdict
from soul.tasks import userllm_set
from soul.tasks.userllm_turn import END, Turn, choices_mentioned, intent_overlap, normalized, spoken

Source = Literal["commonsense_qa", "natural_questions", "prism"]

HEADLINE = Metric(
    "episode_score",
    source="paper, section C.10, for one episode: role adherence, intent adherence, or the mean of a prism turn's own "
    "scores",
)
SET_HEADLINE = Metric(
    "mean_of_metrics",
    source="paper, sections 5 and C.10: the mean of role adherence, intent adherence, intent decomposition, "
    "human-likeness, termination F1 and first-turn diversity over the whole set",
)

ENDED_WITHOUT_A_WORD = (
    "You ended the conversation without a message. That is right only if this person has nothing more to say. Decide "
    "again whether this person would stop here or go on. If they would go on, write their next message."
)
RULES = """\
You play a person who writes to an AI assistant. Write this person's next message and nothing else: no name before it, \
no quotation marks around it, no remarks on it. Write as people type: in your own words, no longer than needed, with \
the odd slip in spelling or punctuation, and with part of what you want left for later messages. Never answer, help or \
explain: that is the assistant's part."""
FIRST = "The conversation has not begun. Write your first message."
NEXT = f"""\
Write your next message. If it is the last one that this person would send in this conversation, put {END} right \
behind it."""

_INTENTS = ("intent", "intent_summary", "opening_prompt", "question")  # in this order
_OWN_WORDS = ("opening_prompt", "question")  # in a prism row these are the person's own message and not an intent
_SPEAKERS = {"user": "User", "human": "User"}
_COUNTS = ("termination_tp", "termination_fp", "termination_fn")  # what F1 is made of
_FIRST_TURN = "first_turn"  # marks the episodes whose diversity counts


class UserLLMRow(Row):
    """What the user is after, and the conversation so far ("" at its start)."""

    source: Source
    intent: NotBlank = Field(validation_alias=AliasChoices(*_INTENTS))
    conversation_history: str = ""
    assistant_suggestion_turn: str = ""  # natural_questions: what the assistant proposes, where the history lacks it
    question: str = ""
    choices: tuple[str, ...] = ()  # commonsense_qa: the texts of the options
    is_last_turn: bool = False  # prism
    group: Label = ""  # names the conversation, or the question
    user_id: Label = ""  # prism

    @model_validator(mode="before")
    @classmethod
    def _drop_blank_intents(cls, record: Any) -> Any:
        if not isinstance(record, Mapping):
            return record
        blank = [key for key in _INTENTS if isinstance(record.get(key, ""), str) and not record.get(key, "").strip()]
        kept = {key: value for key, value in record.items() if key not in blank and value is not None}
        known = [key for key in _INTENTS if key in kept]
        if "prism" in str(kept.get("source", "")).lower() and known and set(known) <= set(_OWN_WORDS):
            raise ValueError(
                f"intent: this row of prism has only {known[0]}, which is the person's own message; write high-level "
                "intents with `python -m data.userllm intents`"
            )
        given = kept[known[0]] if known else None
        return kept if given is None else kept | {"intent": given}

    @field_validator("source", mode="before")
    @classmethod
    def _prism_by_any_name(cls, value: Any) -> Any:
        return "prism" if isinstance(value, str) and "prism" in value.lower() else value

    @field_validator("choices", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return as_list(value)

    @field_validator("conversation_history", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, str) and not value.lstrip().startswith("["):
            return value.strip()
        try:
            turns = as_list(value)
            return "\n".join(f"{_SPEAKERS.get(t['role'], 'Assistant')}: {str(t['content']).strip()}" for t in turns)
        except (ValueError, TypeError, KeyError):
            return value  # a text that begins with a bracket, or nothing that can be read: for pydantic to judge

    @property
    def conversation(self) -> str:
        """The conversation so far, with the assistant's proposal at its end."""
        proposal = self.assistant_suggestion_turn.strip()
        if not proposal or proposal in self.conversation_history:
            return self.conversation_history
        return f"{self.conversation_history}\nAssistant: {proposal}".strip()


@dataclass(frozen=True)
class Detection:
    """What an AI detector says of a turn.

    Attributes:
        human_share: how much of it was written by a person, from 0 to 1.
        critique: what to keep or change, where the detector can say.
    """

    human_share: float
    critique: str | None = None


class Detector(Protocol):
    """Tells how much of a turn sounds like a person.

    A detector that fails raises JudgeFailure, as a judge does. One that needs no judge leaves it alone; give the task
    `calls_per_episode` that say so.
    """

    async def __call__(self, row: UserLLMRow, turn: str, judge: Judge) -> Detection: ...


class HumanLikeness(BaseModel):
    """What the judge answers as a detector."""

    reasoning: str
    human_likeness: float = Field(ge=0, le=1, allow_inf_nan=False)
    critique: str = Field(min_length=1)


class IntentAdherence(BaseModel):
    """What the judge answers about a turn after a proposal."""

    reasoning: str
    outcome: Literal["refused", "accepted"]
    critique: str = Field(min_length=1)


LIKENESS = load_prompt("userllm/human_likeness")
ADHERENCE = load_prompt("userllm/intent_adherence")


async def ask_judge(row: UserLLMRow, turn: str, judge: Judge) -> Detection:
    """The detector that is a judge."""
    data = {"intent": row.intent, "conversation": row.conversation, "user_turn": turn}
    said = await judge.ask(HumanLikeness, LIKENESS, data)
    return Detection(said.human_likeness, said.critique)


class UserLLM(Task[UserLLMRow]):
    """Ask again who wrote the song, instead of hearing about its covers.

    The reward of an episode (`episode_score`) is a stand-in for training: a set is scored by `set_metrics`.

    Args:
        detector: who tells how human a turn of the prism rows sounds: the "judge", or a `Detector` of one's own, as
            "package.module:function".
    """

    name = "userllm"
    row_type = UserLLMRow
    version = 2  # 2: a set has a score of its own, and the end token alone is an answer
    headline = HEADLINE
    strata = Strata("source", equal=True)  # the paper: 600 rows of each of the three
    set_headline = SET_HEADLINE
    calls_per_episode: Mapping[Role, float] = {"judge": 2 / 3}  # type: ignore[misc]  # one for two of three sources
    cuts = (("conversation_history", "end"),)

    def __init__(self, *, detector: str = "judge") -> None:
        self.detector = ask_judge if detector == "judge" else _imported(detector)
        if detector != "judge":
            self.calls_per_episode = {"judge": 1 / 3}

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (ADHERENCE, LIKENESS) if self.detector is ask_judge else (ADHERENCE,)

    def check(self, row: UserLLMRow) -> None:
        if row.source == "commonsense_qa":
            if len({normalized(choice) for choice in row.choices}) < 2:
                raise ValueError(f"choices: {list(row.choices)} are not at least two different options")
            if not all(normalized(choice) for choice in row.choices):
                raise ValueError(f"choices: {list(row.choices)} hold an option without a letter or digit")
        if row.source != "prism" and not row.conversation:
            raise ValueError(f"conversation_history: is empty, but a row of {row.source} answers an assistant turn")

    def groups(self, row: UserLLMRow) -> Mapping[str, str]:
        if row.source != "prism":
            return {"source": row.source}
        return {"source": row.source, "turn of prism": "later" if row.conversation else "first"}

    def group_keys(self, row: UserLLMRow) -> Sequence[GroupKey]:
        if row.source != "prism":
            return [GroupKey.from_text("question", row.question or row.intent)]
        opening = row.conversation_history.partition("\n")[0]
        keys = {"conversation": row.group or opening or row.intent, "user": row.user_id}
        return [GroupKey.from_text(kind, value) for kind, value in keys.items() if value]

    def prompt(self, row: UserLLMRow, feedback: str | None = None) -> list[Message]:
        place = f"The conversation so far:\n{row.conversation}\n\n{NEXT}" if row.conversation else FIRST
        wish = f"What this person is after: {row.intent}"
        return [{"role": "user", "content": f"{RULES}\n\n{wish}\n\n{feedback_paragraph(feedback)}{place}"}]

    async def play(self, row: UserLLMRow, players: Players, feedback: str | None) -> Episode:
        messages = self.prompt(row, feedback)
        answer = await players.policy().say(messages, base=self.prompt(row))
        return Episode({"policy": [*messages, {"role": "assistant", "content": answer}]})

    async def judge(self, row: UserLLMRow, episode: Episode, judge: Judge) -> Verdict:
        turn = spoken(episode.answer)
        if row.source == "prism" and turn.only_ends:
            return _ended_without_a_word(row)
        require_content([turn.text], 1)
        if row.source == "commonsense_qa":
            return _role_adherence(row, turn)
        if row.source == "natural_questions":
            data = {
                "question": row.question or row.intent,
                "conversation": row.conversation,
                "user_turn": turn.text,
            }
            said = await judge.ask(IntentAdherence, ADHERENCE, data)
            refused = float(said.outcome == "refused")
            return Verdict(refused, {HEADLINE.name: refused, "intent_adherence": refused}, said.critique)
        return _open_conversation(row, turn, await self.detector(row, turn.text, judge))

    async def feedback(self, row: UserLLMRow, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        return verdict.critique

    def set_metrics(self, rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
        return userllm_set.set_metrics(rows, outcomes)

    def summarize(self, scored: Sequence[Scored]) -> dict[str, float]:
        """The means over episodes, for training; of prism also the diversity of first turns and the F1 of ending.

        Both are absent where they are undefined: fewer than two first turns, no last turn predicted or true.
        """
        means = super().summarize(scored)
        for name in (_FIRST_TURN, *_COUNTS):
            means.pop(name, None)
        first = [set(words(spoken(episode.answer).text)) for episode, v in scored if _FIRST_TURN in v.metrics]
        if (diversity := jaccard_diversity(first)) is not None:
            means["first_turn_diversity"] = diversity
        tp, fp, fn = (sum(verdict.metrics.get(count, 0.0) for _, verdict in scored) for count in _COUNTS)
        if tp + fp + fn:
            means[userllm_set.F1] = 2 * tp / (2 * tp + fp + fn)
        return means


def _imported(name: str) -> Detector:
    """The detector of that name.

    Raises:
        ValueError: there is none.
    """
    try:
        if ":" in name and callable(found := resolve_name(name)):
            return cast(Detector, found)
        reason = "no function of a module"
    except (ImportError, AttributeError, ValueError) as error:
        reason = str(error)
    raise ValueError(f"detector={name!r}: {reason}; use judge, or package.module:function")


def _role_adherence(row: UserLLMRow, turn: Turn) -> Verdict:
    mentioned, options = choices_mentioned(row.choices, turn.text)
    adheres = float(mentioned in (0, options))
    critique = (
        "You stayed with your question and left the answer to the assistant. Keep to that, in words of your own."
        if adheres
        else "You named some of the options, as one does who answers. You are the one who asks: ask again, say what "
        "you do not understand or repeat the whole question, and lean towards none of the options."
    )
    return Verdict(adheres, {HEADLINE.name: adheres, "role_adherence": adheres}, critique)


def _open_conversation(row: UserLLMRow, turn: Turn, detection: Detection) -> Verdict:
    overlap = intent_overlap(row.intent, turn.text)
    reward = statistics.fmean((1 - overlap, turn.ends == row.is_last_turn, detection.human_share))
    metrics = {
        **_termination(row, turn.ends, reward),
        "intent_overlap": overlap,
        "human_likeness": detection.human_share,
        **({} if row.conversation else {_FIRST_TURN: 1.0}),
    }
    return Verdict(reward, metrics, _critique(row, overlap, detection))


def _ended_without_a_word(row: UserLLMRow) -> Verdict:
    """The verdict on the end token alone. Nothing was said, so no judge is asked.

    The critique does not depend on whether the turn was the last one: that would give the answer away.
    """
    reward = float(row.is_last_turn)
    return Verdict(reward, _termination(row, True, reward), ENDED_WITHOUT_A_WORD)


def _termination(row: UserLLMRow, ends: bool, reward: float) -> dict[str, float]:
    """The metrics that every verdict on a prism turn has."""
    last = row.is_last_turn
    counts = zip(_COUNTS, (ends and last, ends and not last, last and not ends), strict=True)
    return {
        HEADLINE.name: reward,
        "prism": reward,
        "termination_correct": float(ends == last),
        **{name: float(value) for name, value in counts},
    }


def _critique(row: UserLLMRow, overlap: float, detection: Detection) -> str:
    """Detector and rules in words. Whether the conversation ends here is the gold answer: nothing depends on it."""
    parts = [detection.critique.strip()] if detection.critique and detection.critique.strip() else []
    if overlap > 0:
        parts.append(
            f"{overlap:.0%} of the words that carry your message are taken from the description of what you are after. "
            "Say it in words of your own."
        )
    else:
        parts.append("You repeated no word of the description of what you are after. Keep to that.")
    if row.conversation:
        parts.append("Think once more about whether this person would stop here or go on, and end accordingly.")
    return " ".join(parts)
