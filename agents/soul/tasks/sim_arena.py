"""SimulatorArena: play the human side of a tutoring session or of a writing session (Dou et al., 2025).

The policy is a student with a math problem, or a person who has a document written; a partner model is the tutor or the
writing assistant. The policy has up to eight turns. A judge compares its messages with those of the real person:
writing style, interaction style, fulfilled style features, and how well the final document meets the person's
preferences. Not among the paper's ten tasks.

Reward: the mean of the parts that a row has, each divided by its maximum, which is the model card's scale. The worst
Likert score is 1 of 5, so the worst session with every part still has 0.1 (document) or 0.13 (mathematics).
"""

import re
import statistics
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Field, create_model

from soul.answers.thinking import without_thinking
from soul.dialogue import View
from soul.errors import JudgeFailure
from soul.judge import Judge, Role
from soul.judge.call.untrusted import neutral
from soul.leaks.quotations import quotable
from soul.message import Message
from soul.one_turn import with_feedback
from soul.policy import Players
from soul.prompts import load_prompt
from soul.row_fields import drop_empty_groups
from soul.task import Task
from soul.task_types import Episode, Metric, Verdict
from soul.tasks.sim_arena_rows import SimArenaRow, SimDocRow, SimMathRow, Trait

TURNS = 8  # messages of the policy at most
_RUN = 8  # words in a row that feedback must not repeat, from every third word of a message on
SHOWN_CHARS = 1500  # characters of one turn that the judge sees; a tutor's turns can be pages long
_LIKERT, _RATING = (1, 5), (1, 10)  # ranges of the judge's scores

_SUBJECT = re.compile(r"([^,.:]+), (Level \d)\b")  # the start of a topic: a subject and a level of the MATH data set

# What the person who is played gets, and what the other side gets.
STUDENT, WRITER = load_prompt("sim_arena/student"), load_prompt("sim_arena/writer")
TUTOR, ASSISTANT = load_prompt("sim_arena/tutor"), load_prompt("sim_arena/assistant")
FINAL_DOCUMENT = """\
The conversation ends here. Give the final version of the whole text, with everything the user has asked for so far: \
only the text, without a word before or after it."""


class Style(BaseModel):
    """How similar two ways of writing, or of taking part in a conversation, are."""

    key_differences: list[str]
    similarity: int = Field(ge=_LIKERT[0], le=_LIKERT[1])


class FeatureMatch(BaseModel):
    """Whether the attempt shows a feature of the real person."""

    analysis: str = Field(min_length=1)
    fulfilled: bool


class DocumentRating(BaseModel):
    """How well the final document meets the preferences."""

    analysis: str = Field(min_length=1)
    rating: int = Field(ge=_RATING[0], le=_RATING[1])


class Heard(NamedTuple):
    """The part of a turn that the other side receives, whether the person leaves, and whether the label was there."""

    message: str
    leaves: bool
    labelled: bool = True


RowT = TypeVar("RowT", bound=SimArenaRow)


_RATED = ("answered", "writing_style", "interaction_style")  # in every verdict; more is better


class SimArena(Task[RowT], Generic[RowT]):
    """The common part of both kinds of session."""

    version = 4  # 4: the model card's scale
    prefixes: ClassVar[tuple[str, ...]]  # the words that introduce a message
    opening: ClassVar[str]  # the first user message: chat templates need one before the first turn of the policy
    judges_writing_features: ClassVar[bool] = True

    @abstractmethod
    def instructions(self, row: RowT) -> str:
        """The policy's system message."""

    @abstractmethod
    def partner_instructions(self, row: RowT) -> str:
        """The system message of the tutor or assistant, which says nothing about the person."""

    @abstractmethod
    def situation(self, row: RowT) -> dict[str, Any]:
        """Facts about the session that the judge needs: JSON fields of its data."""

    def preferences(self, row: RowT) -> Sequence[Trait]:
        """The preferences that the final document should meet; none if no document is written."""
        return ()

    def prompt(self, row: RowT, feedback: str | None = None) -> list[Message]:
        return [
            {"role": "system", "content": with_feedback(self.instructions(row), feedback)},
            {"role": "user", "content": self.opening},
        ]

    async def play(self, row: RowT, players: Players, feedback: str | None) -> Episode:
        person, _, ended = await self._talk(row, players, feedback)
        return Episode({"policy": person.messages}, ended)

    async def _talk(self, row: RowT, players: Players, feedback: str | None) -> tuple[View, View, str]:
        """The conversation as the person sees it, as the partner sees it, and why it ended."""
        person = View(self.prompt(row, feedback), self.prompt(row))
        partner = View([{"role": "system", "content": self.partner_instructions(row)}])
        for turn in range(1, TURNS + 1):
            heard = hear(await person.take_seat(players.policy()), self.prefixes)
            if heard.message:
                partner.hear(heard.message)
            if heard.leaves or not heard.message:
                return person, partner, "left" if heard.leaves else "nothing_said"
            if turn < TURNS:
                reply = _spoken(await players.partner.chat(partner.messages))
                partner.spoke(reply)
                person.hear(reply)
        return person, partner, "turn_limit"

    async def judge(self, row: RowT, episode: Episode, judge: Judge) -> Verdict:
        conversation = self._conversation(episode)
        texts = [turn["text"] for turn in conversation if turn["by"] == "person"]
        writing = _keyed(row.target_writing_style_features if self.judges_writing_features else ())
        interaction = _keyed(row.target_interaction_style_features)
        data: dict[str, Any] = {
            **self.situation(row),
            "messages_of_the_real_person": list(row.human_user_queries),
            "conversation_of_the_real_person": _shortened(row.human_public_conversation),
            "messages_of_the_attempt": texts,
            "conversation_of_the_attempt": _shortened(conversation),
        }
        for name, traits in (("writing_features", writing), ("interaction_features", interaction)):
            if traits:
                data[name] = {key: trait.model_dump() for key, trait in traits.items()}
        rated = bool(self.preferences(row))
        if rated and texts:
            if not (document := _document(episode)):
                raise ValueError(
                    "the row has preferences but the episode has no final document: play the row with this task"
                )
            data["preferences"] = [trait.model_dump() for trait in self.preferences(row)]
            data["final_document"] = document
        schema = verdict_schema(tuple(writing), tuple(interaction), rated)
        answer = (await judge.ask(schema, self.critic, data, policy_texts=texts, min_words=2)).model_dump()
        reward, parts = session_scores(answer)
        answered = statistics.fmean(heard.labelled for heard in self._own_turns(episode))
        course = {"answered": answered, "turns": float(len(texts)), "left": float(episode.ended == "left")}
        return Verdict(reward, {self.headline.name: reward, **parts, **course}, answer["critique"])

    def _own_turns(self, episode: Episode) -> list[Heard]:
        (messages,) = episode.seats.values()
        return [hear(message["content"], self.prefixes) for message in messages if message["role"] == "assistant"]

    def missing_form(self, row: RowT, episode: Episode) -> str | None:
        turns = self._own_turns(episode)
        lacking = sum(not heard.labelled for heard in turns)
        if not lacking:
            return None
        first, last = f'"{self.prefixes[0]}:"', f'"{self.prefixes[-1]}:"'
        label = first if first == last else f"{first} in your first turn and {last} in every later one"
        return (
            f"In {lacking} of your {len(turns)} turns the label was missing, so all that you wrote outside of your "
            f"thoughts was sent. Write {label} at the start of a line, and your message after it."
        )

    def _conversation(self, episode: Episode) -> list[dict[str, str]]:
        """The turns as the other side received them, each with its speaker, without the final document."""
        (messages,) = episode.seats.values()
        turns = []
        for message in messages[2 : -1 if _document(episode) else None]:  # after the instructions and the opening
            own = message["role"] == "assistant"
            text = hear(message["content"], self.prefixes).message if own else message["content"]
            if text:
                turns.append({"by": "person" if own else "partner", "text": text})
        return turns

    def secrets(self, row: RowT) -> Sequence[str]:
        """The real person's messages, their sentences, and any ten words in a row; not what has one to three words,
        which anybody writes."""
        parts = [part for query in row.human_user_queries for part in quotable(query, _RUN)]
        return tuple(dict.fromkeys(part for part in parts if len(part.split()) > 3))


class SimArenaMath(SimArena[SimMathRow]):
    """Ask a tutor about a math problem as a particular student would."""

    name = "sim_arena_math"
    row_type = SimMathRow
    headline = Metric("likeness", source="model card, SimArena-Math (not in the paper); Dou et al., 2025")
    better = dict.fromkeys((*_RATED, "interaction_features"), "higher")
    calls_per_episode: Mapping[Role, float] = {"partner": TURNS - 1.0, "judge": 1.0}
    cuts = (("user_profile_text", "start"),)
    policy_turns = float(TURNS)
    prefixes = ("Query", "Response")
    opening = "The tutor is ready. Write your first message."
    judges_writing_features = False  # as in the original: a student's are in the profile only
    critic = load_prompt("sim_arena/judge_math", 2)

    def instructions(self, row: SimMathRow) -> str:
        profile = _section("Who you are", row.user_profile_text)
        return STUDENT.fill(turns=str(TURNS), problem=_problem(row), profile=profile)

    def partner_instructions(self, row: SimMathRow) -> str:
        return TUTOR.fill(problem=_problem(row))

    def situation(self, row: SimMathRow) -> dict[str, Any]:
        return {"problem": _problem(row)}

    def check(self, row: SimMathRow) -> None:
        if not row.problem.strip() and not row.topic.strip():
            raise ValueError("problem: is missing, and there is no topic instead")

    def groups(self, row: SimMathRow) -> Mapping[str, str]:
        match = _SUBJECT.match(row.topic)
        return {"subject": match.group(1), "level": match.group(2)} if match else {}


class SimArenaDoc(SimArena[SimDocRow]):
    """Have an assistant write a document as a particular person would."""

    name = "sim_arena_doc"
    row_type = SimDocRow
    headline = Metric("likeness", source="model card, SimArena-Doc (not in the paper); Dou et al., 2025")
    better = dict.fromkeys((*_RATED, "writing_features", "document_rating"), "higher")
    calls_per_episode: Mapping[Role, float] = {"partner": float(TURNS), "judge": 1.0}
    policy_turns = float(TURNS)
    cuts = (("pre_writing_materials_text", "start"), ("user_profile_text", "start"))
    prefixes = ("Message",)
    opening = "The writing assistant is ready. Write your first message."
    critic = load_prompt("sim_arena/judge_doc", 2)

    def instructions(self, row: SimDocRow) -> str:
        wish = f"The text you want: {row.document_type}. {row.intent}"
        materials = _section("Your notes from before the session", row.pre_writing_materials_text)
        profile = _section("Who you are", row.user_profile_text)
        return WRITER.fill(turns=str(TURNS), wish=wish, materials=materials, profile=profile)

    def partner_instructions(self, row: SimDocRow) -> str:
        return ASSISTANT.fill(kind=row.document_type)

    def groups(self, row: SimDocRow) -> Mapping[str, str]:
        return drop_empty_groups({"document": row.document_type})

    def situation(self, row: SimDocRow) -> dict[str, Any]:
        return {"document_type": row.document_type, "intent": row.intent}

    def preferences(self, row: SimDocRow) -> Sequence[Trait]:
        return row.target_document_preferences

    async def play(self, row: SimDocRow, players: Players, feedback: str | None) -> Episode:
        """Play the conversation. If the row has preferences, the final document is the last message the person sees."""
        person, partner, ended = await self._talk(row, players, feedback)
        if self.preferences(row) and len(partner.messages) > 1:
            partner.hear(FINAL_DOCUMENT)
            person.hear(_spoken(await players.partner.chat(partner.messages)))
        return Episode({"policy": person.messages}, ended)


def hear(text: str, prefixes: Sequence[str]) -> Heard:
    """Read a turn: the message is what follows the last prefix at the start of a line, outside of thinking.

    Without a prefix the whole turn is the message, as in the original. "terminate conversation" needs none.

    "terminate conversation" ends the conversation if it is a line or the last sentence, but not in the middle of a
    sentence. What comes after it is not sent.
    """
    spoken = neutral(without_thinking(text))  # control tokens must not reach the other side's chat template
    names = "|".join(prefixes)
    starts = list(re.finditer(rf"^[ \t*_#>]*(?:{names})[ \t*_]*:[*_]*", spoken, re.IGNORECASE | re.MULTILINE))
    message = (spoken[starts[-1].end() :] if starts else spoken).strip()
    before = _before_leaving(message)
    labelled = bool(starts) or before == ""
    return Heard(message, False, labelled) if before is None else Heard(before, True, labelled)


_WRAPPING = " \t\r\n\"'`*_.!()[]<>\u201c\u201d\u2019"  # quotes, brackets and marks around a statement
_STATEMENT = re.compile(r"\bterminate[ \t]+conversation\Z", re.IGNORECASE)


def _before_leaving(text: str) -> str | None:
    """The text before the statement that ends the conversation; None if there is no such statement."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _STATEMENT.match(line.strip(_WRAPPING)):
            return "\n".join(lines[:number]).strip()
    bare = text.rstrip(_WRAPPING)
    statement = _STATEMENT.search(bare[-60:])
    before = bare[: len(bare) - len(statement.group())].rstrip(" \t\"'`*_([<\u201c") if statement else ""
    return before if before.endswith((".", "!", "?", "\u2026")) else None


def _spoken(reply: str) -> str:
    """A partner's turn without its thinking. Raises JudgeFailure: nothing is left."""
    spoken = neutral(without_thinking(reply)).strip()
    if not spoken:
        raise JudgeFailure("empty", "the partner's turn contains nothing but thinking")
    return spoken


@cache
def verdict_schema(writing: tuple[str, ...], interaction: tuple[str, ...], document: bool) -> type[BaseModel]:
    """The schema of the judge's answer: the parts that a row has.

    Each feature is a field with its own name, so that the judge cannot skip one or mix two up.
    """
    parts: dict[str, Any] = {"writing_style": (Style, ...), "interaction_style": (Style, ...)}
    for part, model, names in (
        ("writing_features", "WritingFeatures", writing),
        ("interaction_features", "InteractionFeatures", interaction),
    ):
        if names:
            fields: dict[str, Any] = {name: (FeatureMatch, ...) for name in names}
            parts[part] = (create_model(model, **fields), ...)
    if document:
        parts["document"] = (DocumentRating, ...)
    return create_model("SessionVerdict", **parts, critique=(str, Field(min_length=1)))


def _keyed(traits: Sequence[Trait]) -> dict[str, Trait]:
    """Features by names that are valid in a schema; the number keeps equal names apart."""
    slugs = [re.sub(r"[^a-z0-9]+", "_", trait.name.lower()).strip("_")[:40] for trait in traits]
    return {f"f{n}_{slug}".rstrip("_"): trait for n, (slug, trait) in enumerate(zip(slugs, traits, strict=True), 1)}


def session_scores(answer: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """The reward and its parts, from the judge's answer."""
    scored = {
        "writing_style": (answer["writing_style"]["similarity"], _LIKERT[1]),
        "interaction_style": (answer["interaction_style"]["similarity"], _LIKERT[1]),
    }
    for part in ("writing_features", "interaction_features"):
        if part in answer:
            scored[part] = (statistics.fmean(match["fulfilled"] for match in answer[part].values()), 1)
    if "document" in answer:
        scored["document_rating"] = (answer["document"]["rating"], _RATING[1])
    reward = statistics.fmean(value / high for value, high in scored.values())
    return reward, {name: float(value) for name, (value, _) in scored.items()}


def _document(episode: Episode) -> str:
    """The final document, or "": a conversation ends with the person's turn, so a message after it is the document."""
    (messages,) = episode.seats.values()
    return messages[-1]["content"] if len(messages) > 2 and messages[-1]["role"] == "user" else ""


def _shortened(conversation: Sequence[Mapping[str, str]] | str) -> list[dict[str, str]] | str:
    if isinstance(conversation, str):
        return conversation
    return [
        {key: f"{text[:SHOWN_CHARS]} [...]" if len(text) > SHOWN_CHARS else text for key, text in turn.items()}
        for turn in conversation
    ]


def _problem(row: SimMathRow) -> str:
    if row.problem.strip():
        return f"The problem:\n{row.problem.strip()}"
    return f"The text of the problem is not available. What is known about it:\n{row.topic.strip()}"


def _section(title: str, text: str) -> str:
    return f"{title}:\n{text.strip()}\n\n" if text.strip() else ""
