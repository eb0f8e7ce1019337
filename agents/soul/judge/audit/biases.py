"""Measure a judge's biases: by how much a change that makes a reply no better changes its score.

    soul judge biases judge.model=NAME [policy.model=NAME]

The material is twelve honest replies, a good, a middling and a weak one for each scenario of the canaries, graded from
0 to 10. All changes are made by rule. A change that adds words is compared with the same reply and as many neutral
words, so that a judge that likes length shows it in `length` alone. A policy learns to exploit an effect above 0. An
effect below 0 means that the judge dislikes the change, and the rubric may want that: friends do not write lists.

`position` shows two replies in both orders to MirrorBench's pairwise prompt, and `order of dimensions` asks for three
scores in both orders. Judges prefer texts of their own family (arXiv 2404.13076): the models' names tell.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Any, TypeVar

from pydantic import BaseModel, Field, create_model
from rich.table import Table as RichTable

from soul.cli.error_border import Parser, reports_errors
from soul.errors import Cause, JudgeFailure
from soul.judge import Gateway, GatewaySettings, Judge
from soul.judge.audit.agreement_statistics import krippendorff_alpha
from soul.judge.audit.canaries import DATA, SCENARIOS, Grade, Scenario, instructions
from soul.judge.judge import all_answers
from soul.judge.ledger import money
from soul.judge.mirrorbench_judgments import pairwise
from soul.judge.roles import policy_endpoint, sections_of
from soul.message import Message
from soul.metrics.intervals import LEVEL, Interval, difference_of, holm, mean_of, p_of_pairs
from soul.prompts import load_prompt
from soul.table import NONE, Table, terminal

_CASES, RATE = DATA["biases"], load_prompt("audit/dimensions")
SMALLEST = 0.02  # of the range: a smaller effect does not matter, however certain it is
POINTS: Interval = (0.0, 10.0)
WINS: Interval = (0.0, 1.0)
DIMENSIONS = {
    "fit": "it does what the situation calls for",
    "substance": "it says something concrete of its own",
    "voice": "it sounds like this person, not like a textbook",
}
_ALIASES = {"chatgpt": "gpt", "o1": "gpt", "o3": "gpt", "o4": "gpt", "gemma": "gemini", "qwq": "qwen"}
_ALIASES |= dict.fromkeys(("mixtral", "ministral", "magistral"), "mistral")
_FAMILIES = {*_ALIASES.values(), "claude", "llama", "deepseek", "phi", "glm", "kimi", "olmo", "grok", "granite"}
Score = float | Cause  # of a call: its score, or why there is none
Pair = tuple[Score, Score]
AnswerT = TypeVar("AnswerT")
REPLIES = [(one, text) for one in SCENARIOS for text in (one.good, _CASES["middling"][one.name], one.weak)]


@dataclass(frozen=True)
class Effect:
    """The mean difference between the scores of `pairs` pairs, or another number of them (flips, repeats).

    Attributes:
        range: of a score.
        failures: why other pairs lack a score; they do not count.
        p: of an effect of 0, adjusted for all biases (Holm); None where nothing is known or tested.
        found: the bias is certain, and of a size that matters.
    """

    name: str
    range: Interval
    mean: float | None = None
    interval: Interval | None = None
    pairs: int = 0
    failures: Mapping[Cause, int] = field(default_factory=dict)
    p: float | None = None
    found: bool = False

    def __str__(self) -> str:
        between = " [{:+.2f}, {:+.2f}]".format(*self.interval) if self.interval else ""
        return f"{self.name} unknown" if self.mean is None else f"{self.name} {self.mean:+.2f}{between}"


async def measure(judge: Judge) -> list[Effect]:
    """Ask the judge about all replies and their changes, all at once (the gateway limits concurrency)."""
    texts = [text for _, text in REPLIES]
    kinds = {
        "plain": texts,
        "again": texts,
        "two sentences": [f"{text} {_neutral(2)}" for text in texts],
        "twice as long": [f"{text} {_neutral(max(1, round(len(text.split()) / 5)))}" for text in texts],
        "length": [f"{text} {_neutral(8)}" for text in texts],
        "form": [as_list(text) for text in texts],
        "politeness": [f"{text} {_CASES['politeness']}" for text in texts],  # ten words, as praise
        "praise": [f"{text} {_CASES['praise']}" for text in texts],
        "repetition": [f"{text} {text}" for text in texts],
    }
    graded, orders, positions = await asyncio.gather(
        all_answers(*(grades(judge, of_kind, sample=int(kind == "again")) for kind, of_kind in kinds.items())),
        all_answers(*(_orders(judge, *reply) for reply in REPLIES)),
        all_answers(*(_positions(judge, a, b) for a, b in combinations(REPLIES, 2) if a[0] == b[0])),
    )
    scores = {
        kind: [one if isinstance(one, str) else one.score for one in answers]
        for kind, answers in zip(kinds, graded, strict=True)
    }
    twice = list(zip(scores["plain"], scores["again"], strict=True))
    scores["plain"] = [fmean(both[0]) if (both := _known([pair])) else pair[0] for pair in twice]
    compared = {"politeness": "two sentences", "praise": "two sentences", "repetition": "twice as long"}
    effects = [
        _effect(name, POINTS, list(zip(scores[compared.get(name, "plain")], scores[name], strict=True)))
        for name in ("length", "form", "politeness", "praise", "repetition")
    ]
    effects += [_effect("order of dimensions", POINTS, orders), _effect("position, for A", WINS, positions)]
    for i, p in enumerate(holm([effect.p for effect in effects])):
        large = abs(effects[i].mean or 0.0) >= SMALLEST * effects[i].range[1]
        effects[i] = replace(effects[i], p=p, found=large and p is not None and p < LEVEL)
    flips = replace(_effect("position, flips", WINS, positions, flips=True), p=None)
    alpha = krippendorff_alpha(list(zip(*_known(twice), strict=True))) if _known(twice) else None
    repeats = replace(_effect("repeats, alpha", POINTS, twice), range=(-1.0, 1.0), mean=alpha, interval=None, p=None)
    return [*effects, flips, repeats]


def as_list(text: str) -> str:
    """The same words as a Markdown list, with the first sentence in bold."""
    first, *others = re.split(r"(?<=[.!?])\s+", text)
    return "\n".join(f"- {sentence}" for sentence in (f"**{first}**", *others))


def _neutral(sentences: int) -> str:
    return " ".join(_CASES["neutral"][:sentences])  # of five words each


async def grades(judge: Judge, texts: Sequence[str], sample: int = 0) -> list[Grade | Cause]:
    """Score and reason for a text in the place of each reply."""
    cases = [(one, {"situation": one.situation, "reply": text}) for (one, _), text in zip(REPLIES, texts, strict=True)]
    return await all_answers(*(_tried(judge.ask(Grade, instructions(one), data, sample=sample)) for one, data in cases))


async def _orders(judge: Judge, scenario: Scenario, text: str) -> Pair:
    """The mean score of the outer dimensions: where each is asked for last, and where it is asked for first."""
    ratings: list[dict[str, Any]] = []
    for names in (list(DIMENSIONS), list(DIMENSIONS)[::-1]):
        fields: dict[str, Any] = {name: (float, Field(ge=0, le=10, allow_inf_nan=False)) for name in names}
        schema: type[BaseModel] = create_model("Ratings", reason=(str, Field(min_length=1)), **fields)
        listed = "\n".join(f"- {name}: {DIMENSIONS[name]}" for name in names)
        system = RATE.fill(listed=listed, shape=", ".join(f'"{name}": <number>' for name in names))
        answer = await _tried(judge.ask(schema, system, {"situation": scenario.situation, "reply": text}))
        if isinstance(answer, str):
            return answer, answer
        ratings.append(answer.model_dump())
    (one, other), (first, *_, last) = ratings, DIMENSIONS
    return fmean((one[last], other[first])), fmean((one[first], other[last]))


async def _positions(judge: Judge, *replies: tuple[Scenario, str]) -> Pair:
    """The second reply's win as B, and as A: the two samples of a pair alternate."""
    one, other = (
        [Message(role="assistant", content=scenario.situation), Message(role="user", content=text)]
        for scenario, text in replies
    )
    wins: dict[str, Score] = {}
    for choice in await all_answers(*(_tried(pairwise(judge, one, other, seed=0, sample=i)) for i in range(2))):
        if isinstance(choice, str):
            return choice, choice
        wins[choice.simulated_slot] = choice.score
    return wins["B"], wins["A"]


async def _tried(question: Coroutine[Any, Any, AnswerT]) -> AnswerT | Cause:
    try:
        return await question
    except JudgeFailure as failure:
        return failure.cause


def _known(pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    return [(a, b) for a, b in pairs if not isinstance(a, str) and not isinstance(b, str)]


def _effect(name: str, range_: Interval, pairs: Sequence[Pair], flips: bool = False) -> Effect:
    """The effect over pairs of scores without and with a change, or the share of those that differ (`flips`)."""
    causes = (next((one for one in pair if isinstance(one, str)), None) for pair in pairs)
    known, failures = _known(pairs), dict(Counter(cause for cause in causes if cause))
    if not known:
        return Effect(name, range_, failures=failures)
    mean = mean_of([float(a != b) for a, b in known], WINS) if flips else difference_of(known, range_)
    p = p_of_pairs([b - a for a, b in known], mean)
    return Effect(name, range_, mean.mean, mean.interval, mean.n, failures, p)


def family_warning(judge: str, policy: str) -> str | None:
    """A warning if two models are of one family by their names; None if they are not, or the names do not tell."""
    found = []
    for model in (judge, policy):
        words = re.findall(r"o[134](?![a-z0-9])|[a-z]+", model.lower())
        found.append({_ALIASES.get(word, word) for word in words} & _FAMILIES)
    if judge != policy and not found[0] & found[1]:
        return None
    return (
        f"The judge {judge} and the policy {policy} are of one family, whose texts judges prefer. Let a judge of "
        "another family score the same episodes too."
    )


def table(effects: Sequence[Effect]) -> RichTable:
    """The effects as a table for the terminal; * marks the biases that were found."""
    lines = [
        [
            one.name,
            NONE if one.mean is None else f"{one.mean:+.2f}{' *' if one.found else ''}",
            "{:+.2f} to {:+.2f}".format(*one.interval) if one.interval else NONE,
            *("{:g} to {:g}".format(*one.range), str(one.pairs)),
            ", ".join(f"{cause} {count}" for cause, count in one.failures.items()) or "0",
        ]
        for one in effects
    ]
    view = Table(("bias", "effect", "95 % interval", "range", "pairs", "failed"), lines)
    return view.rich("Biases: a score with a change minus the score without it (*: found)")


async def with_judge(settings: Sequence[str], test: Callable[[Judge], Awaitable[AnswerT]]) -> tuple[AnswerT, Judge]:
    """The result of a test of the judge of these settings (section.key=value), and the judge with its usage.

    Prints what the test cost, and warns if the policy is of the judge's family.
    """
    policy = policy_endpoint((sections := sections_of(settings)).get("policy"))
    async with Gateway.connect(GatewaySettings.from_sections(sections)) as gateway:
        await gateway.judge.check()
        result, judge = await test(gateway.judge), gateway.judge
    print(f"{judge.usage.calls:,} calls, {judge.usage.failures.total():,} failed: {money(judge.usage)}")
    if policy and (warning := family_warning(judge.endpoint.model, policy.model)):
        print(f"Warning: {warning}")
    return result, judge


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 1 if a bias could not be measured."""
    parser = Parser(prog="soul judge biases", description=__doc__)
    parser.add_argument("settings", nargs="*", help="section.key=value")
    effects, _ = asyncio.run(with_judge(parser.parse_args(arguments).settings, measure))
    terminal().print(table(effects))
    return int(any(not effect.pairs for effect in effects))
