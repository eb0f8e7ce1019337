"""SimulatorArena: students with a tutor, and people whose text an obedient assistant writes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from soul.examples.example import Example, Player, babble, one_by_one, pick
from soul.examples.filled import filled
from soul.metrics.lexical import content_words
from soul.metrics.overlap import token_f1
from soul.tasks.sim_arena import ASSISTANT, FINAL_DOCUMENT, TURNS, SimArenaDoc, SimArenaMath
from soul.tasks.sim_arena_rows import SimArenaRow, SimDocRow, SimMathRow
from soul.testing.replies import ChatRequest, Json, Reply, Text

RowT = TypeVar("RowT", bound=SimArenaRow)

_PROBLEMS = (  # the text, and what to find; {x} is the answer
    ("Two numbers differ by {b} and add up to {total}. What is the larger one?", "larger number"),
    ("A rectangle is {b} wide and has an area of {area}. How long is it?", "length"),
    ("{b} weeks of saving the same amount make {area} coins. How many are saved a week?", "coins a week"),
    ("The mean of {low}, {high} and one more number is {x}. What is that number?", "third number"),
)
_STUDENTS = (
    ("Middle school. Shy, unsure, lower case.", ("how do i even start", "is the {what} {low} maybe", "oh ok {x}. thx")),
    ("High school. Terse, wants no chat.", ("The {what}. How.", "So {x}.")),
    ("Elementary school. Chatty, makes slips.", ("hey im stuck on the {what}!!", "wait {high}??", "no {x}!!", "bye!!")),
    ("College. Hands the work over.", ("Just tell me the {what}, please, I have no time for this today.",)),
    ("Back to school at forty. Thinks aloud.", ("Right, the {what}, where was I.", "Not {low}.", "Ah, {x}, I see.")),
)
_HEDGING = {"name": "Hedging", "question": "Is the student sure?", "answer": "Hardly ever."}
_WORK = {"name": "Work sharing", "question": "Who does the work?", "answer": "They take turns."}

_KINDS = ("a letter", "an e-mail", "a speech", "a short story", "a notice for the hallway")
_TOPICS = (
    "the broken lift, a lost parrot, grandmother's ninetieth, night trains, the rent, a borrowed drill, the choir"
).split(", ")
_TONES = ("angry but polite", "warm and a little sad", "funny without jokes about people", "matter-of-fact")
_LENGTHS = ("three sentences", "a full page", "no more than a paragraph")
_WRITERS = (
    ("Curt. No greetings.", ("{kind} about {topic}", "not like that. {tone}", "length: {length}")),
    (
        "Friendly, explains everything.",
        ("Hello! I need {kind} about {topic}, {tone} if you can, {length}. Thank you!",),
    ),
    ("In doubt.", ("hm maybe {kind}? on {topic}", "could it be {tone}", "or else {length}, not sure", "ok i like it")),
    ("Gives orders.", ("Write {kind}: {topic}.", "Make it {tone}.", "Cut it to {length}. Done.")),
)
_OBLIGING = (
    "Certainly, I would be delighted to assist; kindly proceed with whichever suggestion you deem most suitable."
)


class SimArenaExample(Example[RowT]):
    """The common part of both kinds. The more a player's messages match the real person's, the higher the scores."""

    prefixes: ClassVar[Sequence[str]]
    instructions: ClassVar[str]  # of the judge

    def oracle(self, row: RowT) -> Player:
        return self._talker(row.human_user_queries)

    def contrarian(self, row: RowT) -> Player:
        real = len(row.human_user_queries)
        return self._talker([_OBLIGING] * min((1, TURNS), key=lambda turns: _pace(turns, real)))

    def random(self, row: RowT, rng: random.Random) -> Player:
        return self._talker([babble(rng, rng.randint(2, 9)) for _ in range(rng.randint(1, TURNS))])

    def _talker(self, lines: Sequence[str]) -> Player:
        """A player that says one line after the other, in the format of the task, and leaves with the last one."""
        first, *later = lines
        said = [f"{self.prefixes[0]}: {first}", *(f"{self.prefixes[-1]}: {line}" for line in later)]
        return one_by_one([*said[:-1], f"{said[-1]}\nterminate conversation"])

    def reply(self, request: ChatRequest) -> Reply | None:
        if not request.asks(self.instructions):
            return None
        data = request.data
        attempt, real = data["messages_of_the_attempt"], data["messages_of_the_real_person"]
        writing = _parts(request, token_f1("\n".join(attempt), "\n".join(real)))
        interaction = _parts(request, _pace(len(attempt), len(real)))
        scores = {part: interaction[part] if part.startswith("interaction") else writing[part] for part in writing}
        if "document" in scores:
            scores["document"] = _parts(request, _met(data["preferences"], data["final_document"]))["document"]
        return Json(scores)


class SimArenaMathExample(SimArenaExample[SimMathRow]):
    """Students who look for a number."""

    name = "sim_arena_math"
    hidden = ("human_user_queries", "human_public_conversation", "target_interaction_style_features")
    prefixes, instructions = SimArenaMath.prefixes, SimArenaMath.judge_prompt

    def record(self, number: int) -> dict[str, Any]:
        (problem, what), (profile, lines) = pick(_PROBLEMS, number), pick(_STUDENTS, number)
        x, b = 7 + number, 2 + number % 4
        given = {"x": x, "b": b, "total": 2 * x - b, "area": b * x, "low": x - b, "high": x + b, "what": what}
        queries = [line.format_map(given) for line in lines]
        return {
            "problem": problem.format_map(given),
            "topic": "Algebra, Level 1. Concepts: equations",
            "user_profile_text": profile,
            "human_user_queries": queries,
            "human_public_conversation": _between(queries, "What have you tried so far?"),
            "target_interaction_style_features": [_HEDGING, _WORK][: 1 + number % 2],
        }


class SimArenaDocExample(SimArenaExample[SimDocRow]):
    """People who want a text. The assistant learns its tone and length only if they mention them."""

    name = "sim_arena_doc"
    hidden = (
        "human_user_queries",
        "human_public_conversation",
        "target_writing_style_features",
        "target_document_preferences",
    )
    prefixes, instructions = SimArenaDoc.prefixes, SimArenaDoc.judge_prompt

    def record(self, number: int) -> dict[str, Any]:
        kind, topic, (profile, lines) = pick(_KINDS, number), pick(_TOPICS, number), pick(_WRITERS, number)
        tone, length = pick(_TONES, number, 5), pick(_LENGTHS, number)
        queries = [line.format(kind=kind, topic=topic, tone=tone, length=length) for line in lines]
        return {
            "document_type": kind,
            "intent": f"It is about {topic}.",
            "pre_writing_materials_text": f"- Who will read it?\n  {pick(('Neighbours.', 'Family.'), number)}",
            "user_profile_text": profile,
            "human_user_queries": queries,
            "human_public_conversation": _between(queries, "Here is a draft."),
            "target_writing_style_features": [{"name": "Mood", "question": "Which mood shows?", "answer": profile}],
            "target_document_preferences": [
                {"name": "Tone", "question": "Which tone?", "answer": tone},
                {"name": "Length", "question": "How long?", "answer": length},
            ],
        }

    def reply(self, request: ChatRequest) -> Reply | None:
        if not request.asks(ASSISTANT.partition("{kind}")[0]):
            return super().reply(request)
        wishes = "\n".join(message["content"] for message in request.messages if message["role"] == "user")
        return Text(f"A text that heeds this: {wishes.replace(FINAL_DOCUMENT, '').strip()}")


def _pace(turns: int, real: int) -> float:
    """How similar two numbers of messages are, in [0, 1]."""
    return min(turns, real) / max(turns, real)


def _met(preferences: Sequence[Mapping[str, str]], document: str) -> float:
    """The share of preferences most of whose content words occur in the document."""
    there = set(content_words(document))
    wanted = [content_words(preference["answer"]) for preference in preferences]
    return sum(2 * sum(word in there for word in words) > len(words) for words in wanted) / len(wanted)


def _parts(request: ChatRequest, quality: float) -> dict[str, Any]:
    return dict(filled(request, quality).value)


def _between(queries: Sequence[str], reply: str) -> list[dict[str, str]]:
    """The conversation of the real person, in which the other side always gives this reply."""
    other = {"role": "assistant", "content": reply}
    return [turn for text in queries for turn in ({"role": "user", "content": text}, other)][:-1]
