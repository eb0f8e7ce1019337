"""MirrorBench training files: dialogues drawn again from the benchmark's four corpora, with goals written by a model.

    python -m data.mirrorbench_train convert SOURCES... --against mirrorbench_val.parquet --out FILE \\
        --stages FOLDER --models goal_writer.model=gpt-5.4

`data.mirrorbench_sources` says which files are read. Dialogues that share an id, a search topic or an opening with the
evaluation file are left out before a model is asked. From each corpus, --per-corpus dialogues are drawn by seed, spread
over the numbers of user turns and over the topics.

The goal writer describes the user in 2 to 4 sentences: objective and tone, as the benchmark's own descriptions do. A
description that repeats five words of the user in a row is asked for once more, then dropped and counted.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from data.builder_cli import Builder, Rows, argument
from data.mirrorbench import fields_of
from data.mirrorbench_sources import Dialogue, read
from data.model_stages.stage import Item, Stage, Stages, model_options
from data.rows import Record, numbered
from soul.cli.arguments import positive_int
from soul.leaks.quotations import runs
from soul.metrics.lexical import words
from soul.prompts import load_prompt
from soul.rows.overlap import HeldOut, group_keys
from soul.rows.task_files import parse_row, read_rows

PER_CORPUS = 850  # about 3,400 in all, as in the paper
MOST_TURNS = 12
SEEN_CHARS = 2000  # characters of a turn that the model sees
RUN = 5  # consecutive words that a goal may not share with the user
EVALUATED = "share an id, a topic or an opening with the evaluation file"


class Goal(BaseModel):
    """What the goal writer answers."""

    goal: str = Field(min_length=1)


def fault(item: Item, answer: Goal) -> str:
    """What is wrong with a goal."""
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", answer.goal.strip()) if words(part)]
    if not 2 <= len(sentences) <= 4:
        return "it must have 2 to 4 sentences"
    said = [turn["content"] for turn in item.data["turns"] if turn["role"] == "user"]
    own = {run for text in said for run in runs(words(text), RUN)}
    if copied := next((run for run in runs(words(answer.goal), RUN) if run in own), None):
        return f"it quotes the user: {' '.join(copied)!r}"
    short = [text for text in said if 3 <= len(words(text)) < RUN and f'"{text.strip()}"' in answer.goal]
    return f"it quotes the user: {short[0]!r}" if short else ""


GOALS = Stage("goals", "goal_writer", load_prompt("mirrorbench/goal"), Goal, fault, answer_tokens=90)


def dialogues(
    paths: Sequence[Path], held_out: HeldOut, per_corpus: int, seed: int, left_out: Counter[str]
) -> list[Dialogue]:
    """The dialogues that goals are written for, by corpus."""
    by_corpus: dict[str, list[Dialogue]] = {}
    seen: set[tuple[str, str]] = set()
    for dialogue in (one for path in paths for one in read(path, left_out)):
        key = (dialogue.dataset, dialogue.id)
        if len(dialogue.turns) > MOST_TURNS:
            left_out[f"{dialogue.dataset}: more than {MOST_TURNS} turns"] += 1
        elif key in seen:
            left_out[f"{dialogue.dataset}: the same id twice"] += 1
        elif held_out.shared_keys(group_keys(parse_row("mirrorbench", {"index": 0, **_record(dialogue, "None.")}))):
            left_out[f"{dialogue.dataset}: {EVALUATED}"] += 1
        else:
            seen.add(key)
            by_corpus.setdefault(dialogue.dataset, []).append(dialogue)
    drawn = []
    for name, candidates in sorted(by_corpus.items()):
        chosen = _spread(candidates, per_corpus, random.Random(f"mirrorbench:{seed}:{name}"))
        left_out[f"{name}: beyond the {per_corpus:,} that are drawn"] += len(candidates) - len(chosen)
        drawn += chosen
    return drawn


def _spread(candidates: Sequence[Dialogue], count: int, rng: random.Random) -> list[Dialogue]:
    """Draw dialogues in turn from each number of user turns (1, 2, 3, more), and there from each topic."""
    pools: dict[int, list[Dialogue]] = {}
    for dialogue in rng.sample(candidates, len(candidates)):
        pools.setdefault(min(len(dialogue.user_turns), 4), []).append(dialogue)
    for pool in pools.values():
        used: Counter[str] = Counter()
        rank = {}
        for dialogue in pool:
            rank[dialogue.id] = used[dialogue.topic] if dialogue.topic else 0
            used[dialogue.topic] += 1
        pool.sort(key=lambda one: -rank[one.id])  # taken from the end: every topic once, then every topic again
    chosen: list[Dialogue] = []
    while len(chosen) < count and any(pools.values()):
        chosen += [pool.pop() for _, pool in sorted(pools.items()) if pool][: count - len(chosen)]
    return chosen


def _record(dialogue: Dialogue, goal: str) -> Record:
    raw = {"task_description": goal, "dataset": dialogue.dataset, "conversation_id": dialogue.id}
    topic = {"topic_id": dialogue.topic} if dialogue.topic else {}
    return fields_of(dialogue.where, {**raw, "turns": list(dialogue.turns), "metadata": topic})


def items(drawn: Sequence[Dialogue]) -> list[Item]:
    """What the goal writer is asked."""
    return [
        Item(
            f"{one.dataset}/{one.id}",
            {"turns": [{**turn, "content": turn["content"][:SEEN_CHARS]} for turn in one.turns]},
        )
        for one in drawn
    ]


def _drawn(args: argparse.Namespace, left_out: Counter[str]) -> list[Dialogue]:
    held_out = HeldOut(read_rows([str(path) for path in args.against or []]))
    return dialogues(args.sources, held_out, args.per_corpus, args.seed, left_out)


def _rows(args: argparse.Namespace) -> Rows:
    left_out: Counter[str] = Counter()
    drawn = _drawn(args, left_out)
    stages = Stages(args.stages, args.models)
    goals = stages.run(GOALS, items(drawn))
    records = []
    for one, item in zip(drawn, items(drawn), strict=True):
        if item.key in goals:
            records.append(_record(one, goals[item.key].goal.strip()))
            stages.keep(item.key, item.data, {"goal": goals[item.key].goal})
    if not records:
        raise ValueError(f"no dialogue is left: {', '.join(f'{n:,} ({why})' for why, n in left_out.items())}")
    return Rows(
        numbered(records),
        +(left_out + stages.dropped),
        task="mirrorbench",
        models=stages.uses,
        decisions=stages.decisions,
    )


def _plan(args: argparse.Namespace) -> list[str]:
    """The calls that `convert` would make, and their price."""
    return [Stages(args.stages, args.models).plan(GOALS, items(_drawn(args, Counter())))]


BUILDER = Builder(
    "data.mirrorbench_train",
    __doc__,
    _rows,
    group="group",
    groups="openings and topics",
    sources="SRC",
    plan=_plan,
    options=[
        argument("--against", type=Path, nargs="+", metavar="FILE", help="evaluation files to leave out"),
        argument("--per-corpus", type=positive_int, default=PER_CORPUS, help=f"dialogues (default {PER_CORPUS})"),
        *model_options("mirrorbench"),
    ],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
