"""More tellings of ParaToMi's training stories: a model rewrites them, and another one compares the two tellings.

    python -m data.paratomi_paraphrase convert train.txt --stories 500 --out FILE --stages FOLDER \\
        --models paraphraser.model=gpt-5.4-mini filter.model=gpt-5.4

This is an addition to the paper's data: mix the file in if you want more surface forms of the same stories. Questions,
answers and candidates stay as they are.

A telling is kept if it has as many sentences, if each of them names the same people, rooms, containers and objects, if
it copies fewer than half of them, and if the filter finds no sentence that tells another event. A story and its
tellings are one group (`soul.tasks.paratomi_story.story_key`), so that no split separates them.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from data import paratomi
from data.built import Builder, Rows, argument
from data.model_stages.stage import Item, Stage, Stages, model_options
from data.rows import Record, numbered
from soul.cli.arguments import positive_int
from soul.prompts import load_prompt
from soul.tasks.paratomi_story import places, story_key

STORIES = 500
DIFFERENT = "filter: a sentence tells another event"
_NAME = re.compile(r"\b[A-Z][a-z]+\b")
# Words that may begin a sentence; `story_key` takes any other capitalised word for a name.
_COMMON = frozenset("The There In Inside On At A An It".split())


class Telling(BaseModel):
    """What the paraphraser answers."""

    sentences: list[str] = Field(min_length=1)


class Comparison(BaseModel):
    """What the filter answers."""

    different: list[int]


def named(sentence: str, things: Sequence[str]) -> list[str]:
    """The people, places and things in a sentence, as it writes them."""
    # An object may begin a sentence: "Gloves lie in the crate".
    people = [name for name in _NAME.findall(sentence) if name not in _COMMON and name.lower() not in things]
    mentioned = [thing for thing in things if re.search(rf"\b{re.escape(thing)}\b", sentence.casefold())]
    return sorted({*people, *places([sentence]), *mentioned})


def fault(item: Item, answer: Telling) -> str:
    """What is wrong with a telling."""
    original, things = item.data["sentences"], item.data["things"]
    if len(answer.sentences) != len(original):
        return f"another number of sentences: {len(answer.sentences)} instead of {len(original)}"
    for number, (new, keep) in enumerate(zip(answer.sentences, item.data["keep"], strict=True), start=1):
        if named(new, things) != keep:
            return f"a sentence names others: sentence {number} must name {', '.join(keep) or 'nobody'}"
    if story_key(answer.sentences, "") != story_key(original, ""):
        return "a word looks like a name: begin sentences with a name, or with The, There, In, Inside, On, At, A or It"
    same = sum(new.strip() == old for new, old in zip(answer.sentences, original, strict=True))
    return f"half of the sentences are copied: {same}" if 2 * same >= len(original) else ""


TELLINGS = Stage("tellings", "paraphraser", load_prompt("paratomi/paraphrase"), Telling, fault, answer_tokens=150)
COMPARISONS = Stage(
    "comparisons", "filter", load_prompt("paratomi/same_events"), Comparison, lambda item, answer: "", answer_tokens=20
)


def items(stories: Sequence[Sequence[str]], things: Sequence[str]) -> list[Item]:
    """What the paraphraser is asked; a story's key is its text."""
    rows = []
    for story in stories:
        own = [thing for thing in things if any(named(sentence, [thing]) for sentence in story)]
        data = {"sentences": list(story), "keep": [named(sentence, own) for sentence in story], "things": own}
        rows.append(Item("\n".join(story), data))
    return rows


def _things(records: Sequence[Record]) -> list[str]:
    """The objects that the questions ask about."""
    asked = (re.search(r"the ([\w-]+)(?: at the beginning| really)?\?", record["question"]) for record in records)
    return sorted({match[1] for match in asked if match})


def _drawn(args: argparse.Namespace) -> tuple[list[Record], list[Item]]:
    """The questions of the drawn stories, and what is asked about the stories."""
    records = paratomi.convert(args.source, args.seed)
    stories = sorted({tuple(record["story"]) for record in records})
    drawn = random.Random(f"paraphrase:{args.seed}").sample(stories, min(args.stories, len(stories)))
    return [one for one in records if tuple(one["story"]) in set(drawn)], items(drawn, _things(records))


def _rows(args: argparse.Namespace) -> Rows:
    records, asked = _drawn(args)
    stages = Stages(args.stages, args.models)
    tellings = stages.run(TELLINGS, asked)
    pairs = [
        Item(one.key, {"original": one.data["sentences"], "rewritten": tellings[one.key].sentences})
        for one in asked
        if one.key in tellings
    ]
    compared = stages.run(COMPARISONS, pairs)
    kept: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.key in compared and not compared[pair.key].different:
            kept[pair.key] = [sentence.strip() for sentence in pair.data["rewritten"]]
            stages.keep(pair.key, {"story": pair.key}, {"telling": "\n".join(kept[pair.key])})
        elif pair.key in compared:
            stages.drop(pair.key, pair.data, compared[pair.key].model_dump(), DIFFERENT)
    rows = [{**one, "story": kept[key]} for one in records if (key := "\n".join(one["story"])) in kept]
    if not rows:
        raise ValueError(f"no telling was kept: {', '.join(f'{n:,} ({why})' for why, n in stages.dropped.items())}")
    numbers = numbered({name: value for name, value in row.items() if name != "index"} for row in rows)
    counts = Counter({f"stories: {why}": count for why, count in stages.dropped.items()})
    return Rows(numbers, counts, task="paratomi", models=stages.uses, decisions=stages.decisions)


def _plan(args: argparse.Namespace) -> list[str]:
    """The calls that `convert` would make, and their price; those of the filter as if every telling passed."""
    _, asked = _drawn(args)
    stages = Stages(args.stages, args.models)
    pairs = [Item(one.key, {"original": one.key, "rewritten": one.key}) for one in asked]
    return [stages.plan(TELLINGS, asked), stages.plan(COMPARISONS, pairs)]


BUILDER = Builder(
    "data.paratomi_paraphrase",
    __doc__,
    _rows,
    group=lambda record: story_key(record["story"], record["question"]),
    plan=_plan,
    options=[
        argument("source", type=Path, metavar="train.txt"),
        argument("--stories", type=positive_int, default=STORIES, help=f"drawn by seed (default {STORIES})"),
        *model_options("paratomi"),
    ],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
