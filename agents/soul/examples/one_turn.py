"""The one-turn tasks whose good and bad answers need more than a letter: names, numbers, rankings and texts."""

import random

from soul.examples.endpoint import filled
from soul.examples.example import WORDS, Example, Player, always, babble
from soul.metrics.lexical import content_words, words
from soul.metrics.ngram import token_f1
from soul.row_fields import options_by_letter
from soul.tasks.fantom import FanToMRow
from soul.tasks.humanllm import RANKS, HumanLLM, HumanLLMRow
from soul.tasks.humanual import Humanual, HumanualRow
from soul.tasks.socsci210 import SocSci210Row
from soul.tasks.userllm import ADHERENCE, LIKENESS
from soul.tasks.userllm_turn import END, UserLLMRow, choices_mentioned
from soul.testing.replies import ChatRequest, Reply

_LONG = 40  # words: for the judge by rule of human-likeness, people type less than this
ASSISTANT = "As an AI language model I see merit on all sides. In conclusion, balance, respect and dialogue are key."


class FanToMExample(Example[FanToMRow]):
    """Conversations that one person leaves for a while, with questions of all four kinds."""

    name = "fantom"

    def bad(self, row: FanToMRow) -> str:
        if row.kind == "list":
            return ", ".join(row.wrong_answer) if isinstance(row.wrong_answer, list) and row.wrong_answer else "nobody"
        if row.kind == "fact":
            return min(WORDS, key=lambda word: token_f1(word, str(row.correct_answer)))
        return super().bad(row)


class SocSci210Example(Example[SocSci210Row]):
    """People with firm views who answer on all three kinds of scales."""

    name = "socsci210"

    def good(self, row: SocSci210Row) -> str:
        return f"{row.response:g}"

    def bad(self, row: SocSci210Row) -> str:
        return f"{max((row.r_min, row.r_max), key=lambda end: abs(end - row.response)):g}"

    def random(self, row: SocSci210Row, rng: random.Random) -> Player:
        return always(f"<answer>{rng.randint(round(row.r_min), round(row.r_max))}</answer>")


class HumanLLMExample(Example[HumanLLMRow]):
    """Readers who pick the next volume of the series they are reading."""

    name = "humanllm"

    def good(self, row: HumanLLMRow) -> str:
        return _ranking([HumanLLM().gold(row), *self._others(row)])

    def bad(self, row: HumanLLMRow) -> str:
        return _ranking(self._others(row))

    def random(self, row: HumanLLMRow, rng: random.Random) -> Player:
        letters = list(options_by_letter(row.candidates))
        return always(f"<answer>{_ranking(rng.sample(letters, len(letters)))}</answer>")

    @staticmethod
    def _others(row: HumanLLMRow) -> list[str]:
        return [letter for letter in options_by_letter(row.candidates) if letter != HumanLLM().gold(row)]


def _ranking(letters: list[str]) -> str:
    return ", ".join(letters[:RANKS])


class HumanualExample(Example[HumanualRow]):
    """People with a view. The judge by rule scores how many of the person's own words the attempt has."""

    def oracle(self, row: HumanualRow) -> Player:
        return always(f"<response>{row.completion}</response>")

    def contrarian(self, row: HumanualRow) -> Player:
        return always(f"<response>{ASSISTANT}</response>")

    def random(self, row: HumanualRow, rng: random.Random) -> Player:
        return always(f"<response>{self.record(rng.randrange(1000))['completion']}</response>")

    def reply(self, request: ChatRequest) -> Reply | None:
        if not request.asks(Humanual.critic):
            return None
        return filled(request, token_f1(request.data["attempt"], request.data["what_the_person_wrote"]))


class UserLLMExample(Example[UserLLMRow]):
    """Questions, proposals and open conversations. Brief turns that refer to the last one pass as human."""

    name = "userllm"

    def oracle(self, row: UserLLMRow) -> Player:
        if row.source == "commonsense_qa":  # naming all options repeats the question
            return always(f"yes but which one? {', '.join(row.choices)}")
        if row.source == "natural_questions":
            return always(f"no thanks. {row.question or row.intent}")
        reply = row.conversation.rpartition("Assistant:")[2]
        own = [word for word in content_words(reply) if word not in words(row.intent)]
        turn = f"and what about {max(own, key=len)}?" if own else "so what would one do about this then?"
        return always(f"{turn} {END}" if row.is_last_turn else turn)

    def contrarian(self, row: UserLLMRow) -> Player:
        if row.source == "commonsense_qa":
            mentioned = {choice: choices_mentioned(row.choices, choice) for choice in row.choices}
            return always(next(choice for choice, (named, options) in mentioned.items() if named < options))
        if row.source == "natural_questions":
            return always("Sure, lovely!")
        recited = " ".join([row.intent] * (1 + _LONG // len(row.intent.split())))
        return always(recited if row.is_last_turn else f"{recited} {END}")

    def random(self, row: UserLLMRow, rng: random.Random) -> Player:
        return always(f"{babble(rng, rng.randint(3, 25))} {rng.choice(('', END))}")

    def reply(self, request: ChatRequest) -> Reply | None:
        if request.asks(ADHERENCE):
            turn, asked = words(request.data["user_turn"]), words(request.data["question"])
            again = sum(word in turn for word in asked) >= len(asked) / 2
            return filled(request, 1.0, outcome="refused" if again else "accepted")
        if request.asks(LIKENESS):
            data = request.data
            turn = words(data["user_turn"])
            brief = min(1.0, max(0.0, 2 - 2 * len(turn) / _LONG))
            follows = not data["conversation"] or not {*content_words(data["conversation"])}.isdisjoint(turn)
            return filled(request, brief if follows else brief / 2)
        return None
