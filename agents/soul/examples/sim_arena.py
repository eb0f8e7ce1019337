"""SimulatorArena: students with a tutor, and people whose text an obedient assistant writes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from soul.examples.endpoint import filled
from soul.examples.example import Example, Player, babble, one_by_one
from soul.metrics.lexical import content_words
from soul.metrics.overlap import token_f1
from soul.tasks.sim_arena import ASSISTANT, FINAL_DOCUMENT, TURNS, SimArenaDoc, SimArenaMath
from soul.tasks.sim_arena_rows import SimArenaRow, SimDocRow, SimMathRow
from soul.testing.replies import ChatRequest, Json, Reply, Text

RowT = TypeVar("RowT", bound=SimArenaRow)


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
    prefixes, instructions = SimArenaMath.prefixes, SimArenaMath.judge_prompt


class SimArenaDocExample(SimArenaExample[SimDocRow]):
    """People who want a text. The assistant learns its tone and length only if they mention them."""

    name = "sim_arena_doc"
    prefixes, instructions = SimArenaDoc.prefixes, SimArenaDoc.judge_prompt

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
