"""MirrorBench training files: dialogues drawn again from the benchmark's four corpora, with goals written by a model.

    python -m data.mirrorbench_train convert SOURCES... --against mirrorbench_val.parquet --out FILE \\
        --stages FOLDER --models goal_writer.model=gpt-5.4

    OASST1         *.trees.jsonl or .trees.jsonl.gz (huggingface.co/datasets/OpenAssistant/oasst1, Apache-2.0)
    Chatbot Arena  *.parquet or .jsonl with conversation_a and conversation_b (lmsys/chatbot_arena_conversations;
                   prompts CC BY 4.0, answers of models CC BY-NC 4.0)
    ClariQ         multi_turn_human_generated_data.tsv (github.com/aliannejadi/ClariQ, no licence)
    Qulac          qulac.json (github.com/aliannejadi/qulac, MIT)

The ids are those of the benchmark: the tree's, the question's with the model after "::", and "clariq-" or "qulac-"
with the row. As there, a dialogue of Arena is the winner's, one of OASST1 follows the reply that was ranked first, and
one of Qulac begins with the assistant's question. Only English is read. Dialogues that share an id, a search topic or
an opening with the evaluation file are left out before a model is asked. From each corpus, 850 dialogues are
drawn by seed, spread over the numbers of user turns and over the topics.

The goal writer describes the user in 2 to 4 sentences: objective and tone, as the benchmark's own descriptions do. A
description that repeats five words of the user in a row is asked for once more, then dropped and counted.
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from data.builder_cli import Builder, Rows
from data.mirrorbench import fields_of
from data.model_stages import Item, Stage, Stages, is_evaluated, model_options
from data.reading import read_csv, read_json, read_records
from data.rows import Record, numbered
from soul.leaks.quotations import runs
from soul.metrics.lexical import words
from soul.prompts import load_prompt

PER_CORPUS = 850  # about 3,400 in all, as in the paper
MOST_TURNS = 12
SEEN_CHARS = 2000  # characters of a turn that the model sees
RUN = 5  # consecutive words that a goal may not share with the user
EVALUATED = "share an id, a topic or an opening with the evaluation file"
Turn = dict[str, str]

# ---- the corpora ----


class Dialogue(NamedTuple):
    """A conversation of a person with an assistant; `topic` of the search, which ClariQ and Qulac share."""

    where: str
    dataset: str
    id: str
    turns: tuple[Turn, ...]
    topic: str = ""

    @property
    def user_turns(self) -> list[str]:
        """The person's texts."""
        return [turn["content"] for turn in self.turns if turn["role"] == "user"]


def read(path: Path, left_out: Counter[str]) -> Iterator[Dialogue]:
    """The dialogues of a file, recognised by its name and fields.

    Args:
        left_out: counts the conversations that are not read, by reason.
    """
    if path.suffix == ".tsv":
        dialogues = _clariq(path)
    elif path.suffix == ".json":
        dialogues = _qulac(path)
    else:
        dialogues = (found for where, raw in read_records(path) if (found := _record(where, raw, left_out)))
    for dialogue in dialogues:
        if not dialogue.user_turns:
            left_out[f"{dialogue.dataset}: no turn of a person"] += 1
        elif not all(turn["content"].strip() for turn in dialogue.turns):
            left_out[f"{dialogue.dataset}: an empty turn"] += 1
        else:
            yield dialogue


def _record(where: str, raw: Mapping[str, Any], left_out: Counter[str]) -> Dialogue | None:
    if "message_tree_id" in raw:
        return _oasst(where, raw, left_out)
    if {"conversation_a", "conversation_b", "winner"} <= set(raw):
        return _arena(where, raw, left_out)
    raise ValueError(
        f"{where}: fields {sorted(raw)[:8]} are neither those of OASST1 (message_tree_id, prompt) nor of "
        "Chatbot Arena (conversation_a, conversation_b, winner)"
    )


def _oasst(where: str, raw: Mapping[str, Any], left_out: Counter[str]) -> Dialogue | None:
    """One path through a tree: the best-ranked reply, and the follow-up that went furthest."""
    turns: list[Turn] = []
    message: Mapping[str, Any] | None = raw["prompt"]
    while message is not None:
        role = "user" if message.get("role") == "prompter" else "assistant"
        turns.append({"role": role, "content": str(message.get("text") or "").strip()})
        message = _next(message)
    reasons = {
        "not English": raw["prompt"].get("lang") != "en",
        "the tree is not ready for export": raw.get("tree_state") not in (None, "ready_for_export"),
        "no reply": len(turns) < 2,
    }
    if reason := next((name for name, applies in reasons.items() if applies), ""):
        left_out[f"oasst1: {reason}"] += 1
        return None
    return Dialogue(where, "oasst1", str(raw["message_tree_id"]), tuple(turns))


def _next(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    replies = [one for one in message.get("replies") or [] if not one.get("deleted") and one.get("lang", "en") == "en"]
    if not replies:
        return None
    if message.get("role") == "prompter":
        return min(replies, key=lambda one: one["rank"] if one.get("rank") is not None else 99)
    return max(replies, key=_depth)


def _depth(message: Mapping[str, Any]) -> int:
    return 1 + max((_depth(reply) for reply in message.get("replies") or []), default=0)


def _arena(where: str, raw: Mapping[str, Any], left_out: Counter[str]) -> Dialogue | None:
    winner = str(raw["winner"])
    reasons = {
        "not English": raw.get("language", "English") != "English",
        "no side won": winner not in ("model_a", "model_b"),
        "flagged by moderation": (raw.get("openai_moderation") or {}).get("flagged"),
    }
    if reason := next((name for name, applies in reasons.items() if applies), ""):
        left_out[f"chatbot_arena: {reason}"] += 1
        return None
    conversation = raw[f"conversation_{winner.removeprefix('model_')}"]
    turns = tuple({"role": str(t["role"]), "content": str(t["content"])} for t in conversation)
    return Dialogue(where, "chatbot_arena", f"{raw['question_id']}::{raw[winner]}", turns)


def _clariq(path: Path) -> Iterator[Dialogue]:
    for number, (where, raw) in enumerate(read_csv(path, "\t")):
        said = [{"role": "user", "content": raw["initial_request"]}]
        for pair in range(1, 4):
            if raw.get(f"question{pair}") and raw.get(f"answer{pair}"):
                said.append({"role": "assistant", "content": raw[f"question{pair}"]})
                said.append({"role": "user", "content": raw[f"answer{pair}"]})
        yield Dialogue(where, "clariq", f"clariq-{number}", tuple(said), raw["topic_id"])


def _qulac(path: Path) -> Iterator[Dialogue]:
    content = read_json(path)
    for number, topic in content["topic_id"].items():
        question, answer = (str(content[name].get(number) or "").strip() for name in ("question", "answer"))
        if question and answer:  # rows for a topic alone have neither
            turns: tuple[Turn, ...] = ({"role": "assistant", "content": question}, {"role": "user", "content": answer})
            yield Dialogue(f"{path}: row {number}", "qulac", f"qulac-{number}", turns, str(topic))


# ---- the goals ----


class Goal(BaseModel):
    """The goal writer's answer."""

    goal: str = Field(min_length=1)


def fault(item: Item, answer: Goal) -> str:
    """Return what is wrong with a goal."""
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


def _drawn(args: argparse.Namespace, left_out: Counter[str]) -> dict[str, tuple[Dialogue, Item]]:
    """The dialogues that goals are written for, and what the goal writer is asked, by key and corpus."""
    evaluated = is_evaluated("mirrorbench", args)
    by_corpus: dict[str, list[Dialogue]] = {}
    seen: set[tuple[str, str]] = set()
    for dialogue in (one for path in args.sources for one in read(path, left_out)):
        key = (dialogue.dataset, dialogue.id)
        if len(dialogue.turns) > MOST_TURNS:
            left_out[f"{dialogue.dataset}: more than {MOST_TURNS} turns"] += 1
        elif key in seen:
            left_out[f"{dialogue.dataset}: the same id twice"] += 1
        elif evaluated(_fields(dialogue, "None.")):
            left_out[f"{dialogue.dataset}: {EVALUATED}"] += 1
        else:
            seen.add(key)
            by_corpus.setdefault(dialogue.dataset, []).append(dialogue)
    drawn = {}
    for name, candidates in sorted(by_corpus.items()):
        chosen = _spread(candidates, PER_CORPUS, random.Random(f"mirrorbench:{args.seed}:{name}"))
        left_out[f"{name}: beyond the {PER_CORPUS:,} that are drawn"] += len(candidates) - len(chosen)
        for one in chosen:
            turns = [{**turn, "content": turn["content"][:SEEN_CHARS]} for turn in one.turns]
            item = Item(f"{one.dataset}/{one.id}", {"turns": turns})
            drawn[item.key] = (one, item)
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


def _fields(dialogue: Dialogue, goal: str) -> Record:
    raw = {"task_description": goal, "dataset": dialogue.dataset, "conversation_id": dialogue.id}
    topic = {"topic_id": dialogue.topic} if dialogue.topic else {}
    return fields_of(dialogue.where, {**raw, "turns": list(dialogue.turns), "metadata": topic})


def _rows(args: argparse.Namespace) -> Rows:
    left_out: Counter[str] = Counter()
    drawn = _drawn(args, left_out)
    stages = Stages.from_args(args)
    goals = stages.run(GOALS, [item for _, item in drawn.values()])
    records = []
    for key, (dialogue, _) in drawn.items():
        if key in goals:
            records.append(_fields(dialogue, goals[key].goal.strip()))
    rows = Rows(numbered(records), +(left_out + stages.dropped), task="mirrorbench")
    return rows._replace(models=stages.uses, dropped=stages.left_out)


def _plan(args: argparse.Namespace) -> list[str]:
    """The calls that `convert` would make, and their price."""
    drawn = _drawn(args, Counter()).values()
    return [Stages(args.stages, args.models).plan(GOALS, [item for _, item in drawn])]


BUILDER = Builder(
    "data.mirrorbench_train",
    __doc__,
    _rows,
    sources="SRC",
    plan=_plan,
    options=model_options("mirrorbench"),
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
