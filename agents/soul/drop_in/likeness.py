"""`soul likeness TRANSCRIPTS --humans TRANSCRIPTS`: how a simulated user's turns differ from those of people.

    soul likeness talks.jsonl --humans mirrorbench/oasst1_mirror.jsonl --json likeness.json

Files are those of `soul audit`; only the user's turns count. Every number is a mean over conversations, with its 95 %
interval, and its distance in standard deviations of the people. Three numbers sum up: the mean distance; how far the
two differ in what turns do (greet, ask, agree, ... and how long they are), as a Jensen-Shannon divergence in bits; and
how often a classifier of style (function words, punctuation, shapes of words: not topics) tells them apart, which is
50 % for equals. Beside them is what two halves of the people give, because no small sample gives 0.

    soul likeness talks.jsonl --humans people.jsonl judge.model=NAME             # a judge guesses, too
    soul likeness results.json --humans people.json --usi OdysSim/agents/tau_usi  # the index of usi.py, too

The judge sees a person's conversation and a simulated one, in random order: of the same task if transcripts have tasks,
else in the order of the files. A tie is half right. Pairs without an answer of the judge are counted and left out.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from soul.cli.arguments import existing_file, existing_folder, is_setting, non_negative_int, output_file
from soul.cli.error_border import Parser, reports_errors
from soul.drop_in.audit import BadTranscript, read
from soul.drop_in.faults import DATA, Transcript, said
from soul.drop_in.usi import usi
from soul.errors import Cause, JudgeFailure, RunFailed
from soul.files.whole_file import write_whole
from soul.judge import ledger
from soul.judge.gateway import Gateway
from soul.judge.mirrorbench_judgments import pairwise
from soul.judge.roles import GatewaySettings, sections_of
from soul.message import Message
from soul.metrics.intervals import FEWEST, Estimate, centered, mean_of, score_of_rows
from soul.metrics.lexical import FUNCTION_WORDS, lexis, words
from soul.table import NONE, Table, terminal

HEDGE = re.compile(rf"\b(?:{'|'.join(DATA['hedges'])})\b", re.I)
CARELESS = re.compile("|".join(DATA["careless"]))
BEHAVIOURS = {name: re.compile(pattern, re.I) for name, pattern in DATA["behaviours"].items()}
LENGTHS = (3, 10, 30)  # words, the ends of the bins
FOLDS = 5
SHORTEST = 5  # letters of a word that may be misspelt
_TOKEN = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Likeness(NamedTuple):
    """A set of simulated users beside people."""

    measures: Mapping[str, tuple[Estimate, Estimate, float]]  # people, simulated, distance in deviations of the people
    summary: Mapping[str, Estimate]


def compare(simulated: Sequence[Transcript], people: Sequence[Transcript]) -> Likeness:
    """Compare the user's turns of two sets of conversations."""
    known = Counter(w for talk in [*simulated, *people] for turn in talk.said_by("assistant") for w in words(turn))
    ours, theirs = ([_measures(talk.said_by("user"), known) for talk in side] for side in (simulated, people))
    measures = {}
    for name in theirs[0]:
        range_, values = (0.0, 100.0 if name.endswith("%") else math.inf), [one[name] for one in theirs]
        one, other = mean_of(values, range_), mean_of([each[name] for each in ours], range_)
        deviation = statistics.stdev(values) or statistics.stdev([*values, *(each[name] for each in ours)]) or 1.0
        measures[name] = one, other, abs(one.mean - other.mean) / deviation
    told_apart = [100.0 * right for right in _recognised(simulated, people)]
    distances = [distance for *_, distance in measures.values()]  # of measures that depend on each other: no interval
    mean = Estimate(statistics.fmean(distances), len(distances), 0.0, None)
    summary = {"mean distance": mean, "behaviours, bits": _divergence(simulated, people)}
    return Likeness(measures, summary | {"told apart, %": mean_of(told_apart, (0.0, 100.0))})


def _measures(turns: Sequence[str], known: Mapping[str, int]) -> dict[str, float]:
    """The numbers of one person's turns; `known`: words of the other sides, who are taken to spell correctly."""
    found = [word for turn in turns for word in words(turn)]
    lexical, per_100 = lexis(turns), 100 / max(1, len(found))
    typos = sum(len(w) >= SHORTEST and w.isalpha() and w not in known and _misspelt(w, known) for w in set(found))
    return {
        "turns": float(len(turns)),
        "words per turn": len(found) / len(turns),
        **(lexical._asdict() if lexical else {"mattr": 0.0, "hdd": 0.0, "yules_k": 0.0}),
        "hedges per 100 words": per_100 * sum(len(HEDGE.findall(turn)) for turn in turns),
        "typos per 100 words": per_100 * typos,
        "careless turns, %": 100 * statistics.fmean(bool(CARELESS.search(turn)) for turn in turns),
        **{f"{name}, %": 100 * statistics.fmean(_act(turn) == name for turn in turns) for name in BEHAVIOURS},
    }


def _misspelt(word: str, known: Mapping[str, int]) -> bool:
    """Check for a frequent word that has two letters swapped, or one dropped, doubled or replaced inside."""
    inner = range(1, len(word) - 1)  # an ending is an inflection
    swapped = (word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in inner)
    shorter = (word[:i] + word[i + 1 :] for i in inner)
    longer = (word[:i] + letter + word[i:] for i in inner for letter in _LETTERS)
    replaced = (word[:i] + letter + word[i + 1 :] for i in inner for letter in _LETTERS)
    return any(known.get(each, 0) > 1 for side in (swapped, shorter, longer, replaced) for each in side)


def _act(turn: str) -> str:
    return next((name for name, pattern in BEHAVIOURS.items() if pattern.search(turn)), "states")


def _divergence(simulated: Sequence[Transcript], people: Sequence[Transcript]) -> Estimate:
    """The Jensen-Shannon divergence of the two distributions over what a turn does and how long it is."""
    cells = {cell: n for n, cell in enumerate(product((*BEHAVIOURS, "states"), range(len(LENGTHS) + 1)))}
    counts = np.zeros((len(simulated) + len(people), len(cells)))
    for row, talk in enumerate([*simulated, *people]):
        for turn in talk.said_by("user"):
            counts[row, cells[_act(turn), sum(len(words(turn)) > end for end in LENGTHS)]] += 1

    def bits(weights: Any) -> Any:
        sides = (weights[:, part] @ counts[part] for part in (np.s_[: len(simulated)], np.s_[len(simulated) :]))
        p, q = (side / np.maximum(side.sum(axis=1, keepdims=True), 1) for side in sides)
        middle = (p + q) / 2
        parts = (side * np.log2(np.divide(side, middle, out=np.ones_like(side), where=side > 0)) for side in (p, q))
        return sum(part.sum(axis=1) for part in parts) / 2

    found = score_of_rows(bits, float(bits(np.ones((1, len(counts))))[0]), len(counts), "behaviours", (0.0, 1.0))
    return centered(found)  # resamples alone lie too high, because a divergence is never below 0


def _style(talk: Transcript) -> Counter[str]:
    """Function words, punctuation and shapes of words, alone and in pairs."""
    counts: Counter[str] = Counter()
    for turn in talk.said_by("user"):
        plain = ["<", *_TOKEN.findall(turn), ">"]
        shapes = [t if t.lower() in FUNCTION_WORDS or not t[0].isalnum() else _shape(t) for t in plain]
        counts.update([*shapes, *(f"{one} {two}" for one, two in zip(shapes, shapes[1:], strict=False))])
    return counts


def _shape(word: str) -> str:
    kind = "9" if word.isdigit() else "X" if word.isupper() else "Xx" if word[0].isupper() else "x"
    return f"{kind}{min(len(word) // 4, 3)}"


def _recognised(simulated: Sequence[Transcript], people: Sequence[Transcript]) -> list[float]:
    """1 for each conversation that naive Bayes, trained on other folds, gives to the right side; equal sides."""
    n = min(len(simulated), len(people))
    sides = [[_style(side[i * len(side) // n]) for i in range(n)] for side in (simulated, people)]
    right = []
    for fold in range(FOLDS):
        train = [sum((talk for i, talk in enumerate(side) if i % FOLDS != fold), Counter[str]()) for side in sides]
        size = len(train[0] | train[1])
        total = [math.log(each.total() + size) for each in train]
        for at, side in enumerate(sides):
            for talk in side[fold::FOLDS]:
                own, other = (
                    sum(count * (math.log(train[k][token] + 1) - total[k]) for token, count in talk.items())
                    for k in (at, 1 - at)
                )
                right.append(0.5 if own == other else float(own > other))
    return right


async def _guesses(
    settings: Sequence[str], simulated: Sequence[Transcript], people: Sequence[Transcript], seed: int
) -> list[float | Cause]:
    """For each pair: 100 if the judge finds the person, 50 for a tie, 0 if not; or why it gave no answer."""
    ours, theirs = ({talk.task: talk for talk in side if talk.task} for side in (simulated, people))
    pairs = [(talk, theirs[task]) for task, talk in ours.items() if task in theirs]
    async with Gateway.connect(GatewaySettings.from_sections(sections_of(settings))) as gateway:

        async def guess(simulated: Transcript, person: Transcript) -> float | Cause:
            try:
                return 100 - 100 * (await pairwise(gateway.judge, _heard(person), _heard(simulated), seed)).score
            except JudgeFailure as failure:
                return failure.cause

        await gateway.judge.check()
        found = await asyncio.gather(*(guess(*pair) for pair in pairs or zip(simulated, people, strict=False)))
        spent = ledger.Ledger()
        spent.add("likeness", gateway.usage())
    terminal().print(ledger.table(spent))
    return found


def _heard(talk: Transcript) -> list[Message]:
    """Return what both sides said, without stop tokens and tools, which would tell the judge who is simulated."""
    told = [(m["role"], said(m["content"]) if m["role"] == "user" else m["content"]) for m in talk.messages]
    return [{"role": role, "content": text} for role, text in told if role in ("user", "assistant") and text]


def table(found: Likeness, floor: Mapping[str, Estimate], notes: Sequence[str] = ()) -> Table:
    """One line for each number; `floor`: what people have beside people."""

    def shown(one: Estimate | None) -> str:
        interval = one and one.interval and f" [{one.interval[0]:.2f}, {one.interval[1]:.2f}]"
        return f"{one.mean:.2f}{interval or ''}" if one else NONE

    lines = [[name, shown(two), shown(one), f"{far:.2f}"] for name, (one, two, far) in found.measures.items()]
    lines += [[name, shown(one), shown(floor.get(name)), NONE] for name, one in found.summary.items()]
    sections = ["m"] * len(found.measures) + ["s"] * len(found.summary)
    below = "Below the line: beside the people, two halves of them. Lower is more alike; [ ]: 95 % interval."
    return Table(["measure", "simulated", "people", "distance"], lines, sections, [below, *notes])


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul likeness", description=__doc__)
    parser.add_argument("files", type=existing_file, nargs="+", metavar="TRANSCRIPTS | judge.key=value")
    parser.add_argument("--humans", type=existing_file, nargs="+", required=True, metavar="TRANSCRIPTS")
    parser.add_argument("--usi", type=existing_folder, metavar="FOLDER", help="agents/tau_usi of a clone of OdysSim")
    parser.add_argument("--seed", type=non_negative_int, default=0, help="for the order in which the judge sees a pair")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write every number to this file")
    every = sys.argv[1:] if arguments is None else arguments
    settings = [word for word in every if word.startswith("judge.") and is_setting(word)]
    given = parser.parse_args([word for word in every if word not in settings])
    simulated, people = (_spoken(files) for files in (given.files, given.humans))
    found, floor = compare(simulated, people), dict(compare(people[::2], people[1::2]).summary)
    summary, notes, failed = dict(found.summary), [], Counter[str]()
    if given.usi:
        index, between = usi(simulated, people, given.usi)
        summary, floor = summary | index, floor | between
        notes.append("USI and its parts: higher is more alike; beside the people, two batches of them.")
    if settings:
        answers = asyncio.run(_guesses(settings, simulated, people, given.seed))
        right = [each for each in answers if not isinstance(each, str)]
        failed.update(each for each in answers if isinstance(each, str))
        causes = f" (failed: {', '.join(f'{cause} {n}' for cause, n in failed.items())})" if failed else ""
        notes.append(f"The judge compared {len(right)} of {len(answers)} pairs{causes}.")
        if not right:
            raise RunFailed(f"{notes[-1]} `soul judge check` asks it once.")
        summary["told apart by a judge, %"] = mean_of(right, (0.0, 100.0))
    title = f"{len(simulated)} simulated users beside {len(people)} people"
    terminal().print(table(found._replace(summary=summary), floor, notes).rich(title))
    if given.json:
        measures = {name: [one.mean, two.mean, far] for name, (one, two, far) in found.measures.items()}
        beside = {name: floor[name].mean if name in floor else None for name in summary}
        rows = {name: [one.mean, one.interval, beside[name]] for name, one in summary.items()}
        write_whole(given.json, json.dumps({"measures": measures, "summary": rows, "failed": failed}, indent=1) + "\n")


def _spoken(files: Sequence[Path]) -> list[Transcript]:
    found = [talk for file in files for talk in read(file) if any(talk.said_by("user"))]
    if len(found) < 2 * FEWEST:
        raise BadTranscript(f"{files[0]}: {len(found)} conversations are too few; {2 * FEWEST} are needed.")
    return found
