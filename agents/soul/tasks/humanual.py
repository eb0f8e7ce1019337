"""Humanual: write what a particular person would write (Wu et al., 2026, HumanLM): reviews, chats, e-mails, comments.

One turn: a text in `<response>`. A judge compares it with what the person really wrote, on six dimensions. The reward
is the mean of the six scores, times a factor below 1 for texts far shorter than the real one. The same judge scores the
draft and the refined text. Not among the paper's ten tasks.
"""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from soul.answers.thinking import without_thinking
from soul.judge import Judge, Role
from soul.leaks.quotations import quotable
from soul.metrics.ngram import token_f1
from soul.one_turn import OneTurnTask, variant
from soul.prompts import load_prompt
from soul.row_fields import chat_turns, drop_empty_groups
from soul.task_types import Episode, Metric, NotBlank, Row, Verdict

DIMENSIONS = ("stance", "emotion", "belief", "value", "goal", "communication")
LONG_GOLD = 20  # words; a shorter gold text does not tell how long a text should be
ENOUGH = 0.3  # share of the gold text's words from which a text is long enough

_RESPONSE = re.compile(r"<response>((?:(?!<response>).)*?)</response>", re.DOTALL | re.IGNORECASE)
_RESPONSE_TAG = re.compile(r"</?response>", re.IGNORECASE)
_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_RUN = 6  # words in a row that feedback must not repeat, from every third word of the text on

PROMPT = load_prompt("humanual/policy")

_AnyText = Annotated[str, BeforeValidator(str)]


class HumanualRow(Row):
    """A situation, a person, and what the person wrote in it."""

    prompt: NotBlank  # the situation: a text, or messages (a list or its JSON)
    persona: str = ""
    completion: NotBlank
    dataset: _AnyText = ""
    category: _AnyText = ""
    id: _AnyText = ""

    @field_validator("prompt", mode="before")
    @classmethod
    def _as_one_text(cls, value: Any) -> Any:
        messages = chat_turns(value)
        if messages is None:
            return value
        if len(messages) == 1:
            return messages[0][1]
        return "\n\n".join(f"{role}: {content}" if role else content for role, content in messages)


class Judged(BaseModel):
    """The judge's answer for one dimension."""

    thought: str = Field(min_length=1)
    score: float = Field(ge=0.0, le=1.0)


class Comparison(BaseModel):
    """The judge's answer."""

    stance: Judged
    emotion: Judged
    belief: Judged
    value: Judged
    goal: Judged
    communication: Judged
    critique: str = Field(min_length=1)


class Humanual(OneTurnTask[HumanualRow]):
    """What would this person write?"""

    name = "humanual"
    row_type = HumanualRow
    headline = Metric("similarity", source="model card, Humanual sets (not in the paper); Wu et al., 2026")
    version = 2  # 2: without the tag, the whole text counts
    calls_per_episode: Mapping[Role, float] = {"judge": 1.0}
    better = dict.fromkeys(("answered", *DIMENSIONS, "mean_of_dimensions", "length_factor", "lexical_f1"), "higher")
    calls_per_feedback = 0.0
    cuts = (("persona", "start"), ("prompt", "end"))
    medium: ClassVar[str] = "your answer to it"
    critic = load_prompt("humanual/judge", 2)

    def system(self, row: HumanualRow) -> str:
        persona = f"\n\nWho you are:\n{row.persona.strip()}" if row.persona.strip() else ""
        return PROMPT.fill(medium=self.medium, persona=persona)

    def render(self, row: HumanualRow) -> str:
        return f"The situation:\n{row.prompt}"

    def gold(self, row: HumanualRow) -> str:
        return row.completion

    def target(self, row: HumanualRow) -> None:
        return None  # another person would have written something else

    def secrets(self, row: HumanualRow) -> Sequence[str]:
        return quotable(row.completion, _RUN)

    def groups(self, row: HumanualRow) -> Mapping[str, str]:
        # A row of the six sets names its own set as dataset, which does not divide the set.
        dataset = row.dataset if row.dataset != self.name else ""
        return drop_empty_groups({"dataset": dataset, "category": row.category})

    async def judge(self, row: HumanualRow, episode: Episode, judge: Judge) -> Verdict:
        text, tagged = response(episode.answer)
        data = {
            "person": row.persona,
            "situation": row.prompt,
            "what_the_person_wrote": row.completion,
            "attempt": text,
        }
        comparison = await judge.ask(Comparison, self.critic, data, policy_texts=[text])
        scores = {name: float(getattr(comparison, name).score) for name in DIMENSIONS}
        mean, factor = statistics.fmean(scores.values()), length_factor(text, row.completion)
        reward = mean * factor
        metrics = {
            self.headline.name: reward,
            **scores,
            "mean_of_dimensions": mean,
            "length_factor": factor,
            "lexical_f1": token_f1(text, row.completion),
            "answered": float(tagged),
        }
        return Verdict(reward, metrics, comparison.critique)

    def missing_form(self, row: HumanualRow, episode: Episode) -> str | None:
        if response(episode.answer).tagged:
            return None
        return (
            "You did not put your text between <response> and </response>, so all that you wrote outside of your "
            "thoughts counted as your text. Put the text, and nothing else, between the tags: "
            "<response>your text</response>"
        )

    async def feedback(self, row: HumanualRow, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        return verdict.critique


def _texts(kind: str, doc: str, medium: str) -> type[Humanual]:
    return variant(Humanual, f"Humanual{kind}", doc, name=f"humanual-{kind.lower()}", medium=medium)


HumanualBook = _texts("Book", "Reviews of books.", "your review of the book")
HumanualChat = _texts(
    "Chat", "Turns of people who chat with an AI assistant.", "your next message in the chat, as its user"
)
HumanualEmail = _texts("Email", "E-mails at work.", "your e-mail")
HumanualNews = _texts("News", "Comments on the news.", "your comment on this piece of news")
HumanualOpinion = _texts("Opinion", "Comments on posts that ask who is in the wrong.", "your comment on this post")
HumanualPolitics = _texts("Politics", "Comments on political texts.", "your comment on this text")


class Response(NamedTuple):
    """The text to judge, and whether it was between the tags."""

    text: str
    tagged: bool


def response(text: str) -> Response:
    """The text of the last `<response>` tag after the thinking; without one, all of it, as in the original."""
    visible = without_thinking(text)
    texts = _RESPONSE.findall(visible)
    return Response(texts[-1].strip(), True) if texts else Response(_RESPONSE_TAG.sub("", visible).strip(), False)


def length_factor(text: str, gold: str) -> float:
    """min(1, words / (0.3 * words of the gold text)); 1 if the gold text is too short to tell."""
    wanted = len(_WORD.findall(gold))
    return min(1.0, len(_WORD.findall(text)) / (ENOUGH * wanted)) if wanted >= LONG_GOLD else 1.0
