"""The examples of the dialogues: players, and partners and judges by rule.

The judges count words: the more of a real person's words (or of their own goal) the policy says, the better. Who talks
like an assistant or repeats a line gets less. They show the format of a verdict and say nothing about people.
"""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from soul.examples.endpoint import filled
from soul.examples.example import Example, Player, always, babble, one_by_one
from soul.judge.mirrorbench_judgments import GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS
from soul.message import Message
from soul.metrics.lexical import content_words
from soul.metrics.ngram import normalized_tokens, token_f1
from soul.tasks import sim_arena
from soul.tasks.coser import CRITICS, MAX_ROUNDS, CoSER
from soul.tasks.coser_stage import END, ENVIRONMENT, SILENCE, CoSERRow
from soul.tasks.mirrorbench import MirrorBenchRow, user_turns
from soul.tasks.sim_arena_rows import SimArenaRow, SimDocRow, SimMathRow
from soul.tasks.sotopia import ACTIONS, Sotopia
from soul.tasks.sotopia_row import SotopiaRow
from soul.testing.replies import ChatRequest, Json, Reply, Text

RowT = TypeVar("RowT", bound=SimArenaRow)
ASSISTANT = (
    "As an AI language model I am glad to help. Kindly proceed with whichever suggestion you deem most suitable."
)
_BRIEF = 20  # words per turn: for the judge of MirrorBench, people type no more on average
_PARTS, _PART_WORDS = 3, 150  # number of turns in which a goal is stated (more if it is long), and words of one


class MirrorBenchExample(Example[MirrorBenchRow]):
    """Real users are brief. A player that repeats their words ties with them in the pairwise test, which scores 0.5."""

    name = "mirrorbench"
    full_marks = 0.875

    def oracle(self, row: MirrorBenchRow) -> Player:
        return one_by_one(row.user_turns)

    def contrarian(self, row: MirrorBenchRow) -> Player:
        return always(" ".join([ASSISTANT] * 3))

    def random(self, row: MirrorBenchRow, rng: random.Random) -> Player:
        return lambda messages: babble(rng, rng.randint(1, 15))

    def reply(self, request: ChatRequest) -> Reply | None:
        if request.asks(GTEVAL_INSTRUCTIONS):
            real, simulated = (_user_text(request.data[f"{who}_conversation"]) for who in ("real", "simulated"))
            return filled(request, token_f1(simulated, real))
        if request.asks(PAIRWISE_INSTRUCTIONS):
            first, second = (_length(request.data[slot]) for slot in "AB")
            alike = max(first, second) <= 1.25 * min(first, second)
            return filled(request, 1.0, human="tie" if alike else "A" if first < second else "B")
        if request.asks(RUBRIC_INSTRUCTIONS):
            brief = _length(request.data["conversation"]) <= _BRIEF
            return filled(request, float(brief), human="YES" if brief else "NO")
        return None


def _user_text(turns: Sequence[Message]) -> str:
    return "\n".join(user_turns(turns))


def _length(turns: Sequence[Message]) -> float:
    """Words per user turn."""
    return len(_user_text(turns).split()) / len(user_turns(turns))


class SimArenaExample(Example[RowT]):
    """The common part of both kinds. The more a player's messages match the real person's, the higher the scores."""

    task_class: ClassVar[type[sim_arena.SimArena[Any]]]

    def oracle(self, row: RowT) -> Player:
        return self._talker(row.human_user_queries)

    def contrarian(self, row: RowT) -> Player:
        real = len(row.human_user_queries)
        return self._talker([ASSISTANT] * min((1, sim_arena.TURNS), key=lambda turns: _pace(turns, real)))

    def random(self, row: RowT, rng: random.Random) -> Player:
        return self._talker([babble(rng, rng.randint(2, 9)) for _ in range(rng.randint(1, sim_arena.TURNS))])

    def _talker(self, lines: Sequence[str]) -> Player:
        prefixes, (first, *later) = self.task_class.prefixes, lines
        said = [f"{prefixes[0]}: {first}", *(f"{prefixes[-1]}: {line}" for line in later)]
        return one_by_one([*said[:-1], f"{said[-1]}\nterminate conversation"])

    def reply(self, request: ChatRequest) -> Reply | None:
        if not request.asks(self.task_class.critic):
            return None
        attempt, real = (request.data[f"messages_of_the_{who}"] for who in ("attempt", "real_person"))
        scores = _fields(request, token_f1("\n".join(attempt), "\n".join(real)))
        paced = _fields(request, _pace(len(attempt), len(real)))
        scores |= {part: paced[part] for part in scores if part.startswith("interaction")}
        if "document" in scores:
            met = _met(request.data["preferences"], request.data["final_document"])
            scores["document"] = _fields(request, met)["document"]
        return Json(scores)


class SimArenaMathExample(SimArenaExample[SimMathRow]):
    """Students who look for a number."""

    name = "sim_arena_math"
    task_class = sim_arena.SimArenaMath


class SimArenaDocExample(SimArenaExample[SimDocRow]):
    """People who want a text. The assistant learns its tone and length only if they mention them."""

    name = "sim_arena_doc"
    task_class = sim_arena.SimArenaDoc

    def reply(self, request: ChatRequest) -> Reply | None:
        if not request.asks(sim_arena.ASSISTANT.partition("{{kind}}")[0]):
            return super().reply(request)
        wishes = "\n".join(message["content"] for message in request.messages if message["role"] == "user")
        return Text(f"A text that heeds this: {wishes.replace(sim_arena.FINAL_DOCUMENT, '').strip()}")


def _pace(turns: int, real: int) -> float:
    """Similarity of two numbers of messages, in [0, 1]."""
    return min(turns, real) / max(turns, real)


def _met(preferences: Sequence[Mapping[str, str]], document: str) -> float:
    """The share of preferences most of whose content words occur in the document."""
    there = set(content_words(document))
    wanted = [content_words(preference["answer"]) for preference in preferences]
    return sum(2 * sum(word in there for word in words) > len(words) for words in wanted) / len(wanted)


def _fields(request: ChatRequest, quality: float) -> dict[str, Any]:
    return dict(filled(request, quality).value)


class SotopiaExample(Example[SotopiaRow]):
    """People with goals, limits and secrets. The policy plays the visitor in one row and the host in the next.

    The partner says a part of what they want whenever they are asked.
    """

    name = "sotopia"

    def hidden_in(self, row: SotopiaRow) -> tuple[str, ...]:
        return tuple(f"{row.partner_position}_{field}" for field in ("background", "secret", "goal"))

    def oracle(self, row: SotopiaRow) -> Player:
        """States the goal bit by bit, asks for the other's wishes, and leaves when everything is said."""
        goal = _parts(row.of(row.eval_position, "goal"))
        asks = [_turn("speak", f"Thank you. To be clear: {part}. What do you want, please?") for part in goal]
        return one_by_one([*asks, _turn("leave", "")])

    def contrarian(self, row: SotopiaRow) -> Player:
        """Repeats one line that reveals the secret and says nothing about the goal."""
        return always(_turn("speak", f"{ASSISTANT} {row.of(row.eval_position, 'secret')}"))

    def random(self, row: SotopiaRow, rng: random.Random) -> Player:
        return lambda messages: _turn("speak", babble(rng, 12))

    def reply(self, request: ChatRequest) -> Reply | None:
        if request.asks(Sotopia.critic):
            data = request.data
            own, others = (
                [t["text"] for t in data["transcript"] if (t["by"] == data["person_to_be_judged"]) is mine]
                for mine in (True, False)
            )
            goals = data["known_to_that_person"]["goal"], data["hidden_from_that_person"]["the_other"]["goal"]
            quality = (_share_said(goals[0], own) + _share_said(goals[1], others) + 1 - _odd(own)) / 3
            return filled(request, quality, critique="Say plainly what you came for, ask, and stay kind.")
        return Json(_partner(request)) if ACTIONS.partition("{")[0] in request.text else None


def _turn(kind: str, argument: str) -> str:
    return json.dumps({"action_type": kind, "argument": argument}, ensure_ascii=False)


def _parts(goal: str) -> list[str]:
    """The goal, divided into the parts that a person states one by one."""
    words = goal.split()
    size = min(_PART_WORDS, math.ceil(len(words) / _PARTS))
    return [" ".join(words[start : start + size]) for start in range(0, len(words), size)]


def _partner(request: ChatRequest) -> dict[str, str]:
    """The partner's turn: the next part of their goal if they were asked something, else a polite phrase."""
    goal = re.search(r"^## Your goal\n(.*?)(?=\n\n## )", request.messages[0]["content"], re.MULTILINE | re.DOTALL)
    heard = [message["content"] for message in request.messages[1:] if message["role"] == "user"]
    parts, asked = _parts(goal.group(1) if goal else ""), sum("?" in turn for turn in heard)
    if "?" not in heard[-1] or asked > len(parts):
        return {"action_type": "speak", "argument": "I see. I have said what I have to say."}
    return {"action_type": "speak", "argument": f"Since you ask: {parts[asked - 1]}"}


def _share_said(text: str, turns: Sequence[str]) -> float:
    """The share of a text's informative words (long, or with a digit) that the turns mention."""
    wanted, said = (
        {word for word in normalized_tokens(some) if len(word) > 4 or any(map(str.isdigit, word))}
        for some in (text, " ".join(turns))
    )
    return len(wanted & said) / len(wanted) if wanted else 0.0


def _odd(lines: Sequence[str]) -> float:
    """The share of lines that sound like an assistant or repeat an earlier one."""
    return sum("language model" in line or line in lines[:number] for number, line in enumerate(lines)) / max(
        1, len(lines)
    )


class CoSERExample(Example[CoSERRow]):
    """Scenes of invented books in which two people both want one thing."""

    name = "coser"

    def oracle(self, row: CoSERRow) -> Player:
        """Every character says their lines of the book in order, then only dots."""

        def say(messages: Sequence[Message]) -> str:
            begins = "You are an actor, and you play {} in a scene from"
            name = next(name for name in row.cast if messages[0]["content"].startswith(begins.format(name)))
            lines = [line.text for line in row.reference if line.speaker == name]
            at_once = math.ceil(len(lines) / max(1, MAX_ROUNDS // len(row.speakers) - 1))
            turn = sum(message["role"] == "assistant" for message in messages)
            said = " ".join(lines[at_once * turn : at_once * (turn + 1)])
            return f"[I know what I want.] {said or '.' * (turn + 1)}"

        return say

    def contrarian(self, row: CoSERRow) -> Player:
        """All characters say the same thing and sound like an assistant."""
        return always(f"[How nice.] {ASSISTANT}")

    def random(self, row: CoSERRow, rng: random.Random) -> Player:
        return lambda messages: f"[{babble(rng, 3)}] {babble(rng, 12)}"

    def reply(self, request: ChatRequest) -> Reply | None:
        if any(map(request.asks, CRITICS.values())):
            return _review(request)
        if request.asks(CoSER.predictor):
            return Json({"reasoning": "They have said least.", "next_speaker": _next_speaker(request.data)})
        if request.asks(CoSER.narrator):
            return Text(f"The wind turns, and a clock strikes {len(request.messages) // 2}.")
        return None


def _review(request: ChatRequest) -> Reply:
    """As many flaws as bring a dimension's score close to the scene's quality, and a critique.

    The quality is the mean of two shares: words of the book that were said, and lines that are not odd.
    """
    book, played = (
        [line for line in request.data[side] if not line.startswith(ENVIRONMENT)]
        for side in ("reference", "simulation")
    )
    said, wanted = (" ".join(text for _, text in _spoken(lines)) for lines in (played, book))
    quality = (token_f1(said, wanted) + 1 - _odd(played)) / 2
    total = round(20 * (1 - quality) + 0.3 * len(played)) if quality < 1 else 0
    flaws = [
        {"flaw": f"It has {quality:.0%} of what it could have.", "severity": min(5, total - at)}
        for at in range(0, total, 5)
    ]
    return filled(
        request, 0.5, flaws=flaws, critique="Let each character want something, and say it once." if flaws else ""
    )


def _spoken(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Speaker and text of each line; "" for a silent turn."""
    split = (line.partition(": ") for line in lines)
    return [(name, "" if text == SILENCE else text) for name, _, text in split]


def _next_speaker(data: Mapping[str, Any]) -> str:
    """The next speaker: the one with the fewest turns among those who may speak. The scene ends if all are silent."""
    lines, candidates = _spoken(data["conversation"]), data["candidates"]
    last, counts = dict(lines), Counter(name for name, _ in lines)
    characters = [name for name in candidates if name not in (ENVIRONMENT, END)]
    talking = [name for name in characters if last.get(name, "?")]
    if talking:
        return str(min(talking, key=lambda name: counts[name]))
    on_stage = {name: text for name, text in last.items() if name != ENVIRONMENT}
    others = [name for name in (END, ENVIRONMENT) if name in candidates]
    if any(on_stage.values()):
        others.reverse()  # prefer the narrator, after whom a character can go on
    return str([*others, *characters][0])
