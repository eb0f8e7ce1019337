"""TwinVoice training files: real replies of people with a history, wrong options by a drafter, and a filter.

    python -m data.twinvoice_train convert bluesky.jsonl messages.ndjson novels/*.txt --against twinvoice_val.parquet \\
        --out FILE --stages FOLDER --models drafter.model=gpt-5.4-mini filter.model=gpt-5.4

`data.twinvoice_people` says which files are read and what is left out of them. A question is a reply of a person who
has written twelve or more texts before it.

1. The drafter writes three other replies, on the same topic and about as long as the real one. Replies that share five
   words in a row with the real one, repeat each other or differ too much in length are asked for once more, then
   dropped.
2. The filter answers the question twice. It must be right with the history, with no other option that fits as well,
   and wrong without the history, where only the occasion and the options are shown.

Lines of the history that give the reply away are removed, as in the evaluation files. The place of the real reply is
drawn by seed. A question of a user or novel that the evaluation holds is left out before a model is asked.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from data.builder_cli import Builder, Rows, argument
from data.model_stages.stage import Item, Stage, Stages, model_options
from data.rows import Record, numbered
from data.twinvoice import side, tells, without_answer
from data.twinvoice_people import Person, is_english, read
from soul.cli.arguments import positive_int
from soul.leaks.quotations import runs
from soul.metrics.lexical import words
from soul.prompts import load_prompt
from soul.record import digest
from soul.rows.overlap import HeldOut, ScopedKey, group_keys
from soul.rows.task_files import parse_row, read_rows

BEFORE = 12  # texts of a person before the reply, at least
HISTORY = 30  # of them that the question shows, at most
REPLY = (6, 60)  # words of a reply
RUN = 5  # consecutive words that an option may not share with the real reply
LENGTH = (0.6, 1.6)  # words of an option, as a share of the real reply's
PER_PERSON = 1
LETTERS = "ABCD"
EVALUATED = "questions: the user or the novel is evaluated"


class Drafts(BaseModel):
    """What the drafter answers."""

    replies: list[str] = Field(min_length=3, max_length=3)


class Pick(BaseModel):
    """What the filter answers."""

    reasoning: str
    answer: Literal["A", "B", "C", "D"]
    equally_likely: list[str] = []


def draft_fault(item: Item, answer: Drafts) -> str:
    """What is wrong with the wrong options."""
    real = words(item.data["reply"])
    options = [words(text) for text in answer.replies]
    if len({" ".join(option) for option in (real, *options)}) < 4:
        return "two replies are the same"
    for option in options:
        if not LENGTH[0] * len(real) <= len(option) <= LENGTH[1] * len(real):
            return f"a reply is too short or too long: {len(option)} words, where the real one has {len(real)}"
        if not set(runs(option, RUN)).isdisjoint(runs(real, RUN)):
            return f"a reply shares {RUN} words in a row with the real one"
    return ""


DRAFTS = Stage("drafts", "drafter", load_prompt("twinvoice/draft"), Drafts, draft_fault, answer_tokens=150)
ANSWERS, BLIND = (
    Stage(name, "filter", load_prompt("twinvoice/answer"), Pick, lambda item, answer: "", answer_tokens=60)
    for name in ("answers_with_history", "answers_without_history")
)


def questions(
    paths: Sequence[Path],
    held_out: HeldOut,
    per_person: int,
    seed: int,
    left_out: Counter[str],
    removed: Counter[str],
) -> Iterator[Record]:
    """The questions as rows with one option, the real reply. `key` names them."""
    for person in (one for path in paths for one in read(path, left_out)):
        places = [
            place
            for place, one in enumerate(person.said)
            if place >= BEFORE and one.occasion and REPLY[0] <= len(words(one.text)) <= REPLY[1]
        ]
        left_out[f"people: no reply after {BEFORE} earlier texts"] += not places
        rng = random.Random(f"twinvoice:{seed}:{person.group}")
        for place in sorted(rng.sample(places, min(per_person, len(places)))):
            if not (is_english(person.said[place].text) and is_english(person.said[place].occasion)):
                left_out["questions: the reply or the occasion is not English"] += 1
                continue
            record = without_answer(_question(person, place), removed)
            if record is None or len(json.loads(record["conversation_history"])) < BEFORE:
                left_out["questions: the history or the occasion gives the reply away"] += 1
            elif held_out.shared_keys(_keys(record)):
                left_out[EVALUATED] += 1
            else:
                # The hash tells people of one name in two files apart, and texts that were added to a file.
                yield {"key": f"{person.group}/{place}/{digest(record)[:12]}", **record}


def _keys(record: Record) -> list[ScopedKey]:
    return group_keys(parse_row("twinvoice", {"index": 0, **record, "answer_choices": ["one", "other"]}))


def _question(person: Person, place: int) -> Record:
    real = person.said[place]
    history = [one.text for one in person.said[:place]][-HISTORY:]
    return {
        "question": real.occasion,
        "anchor_post": real.occasion,
        "dimension": person.dimension,
        "speaker": person.speaker,
        "persona": "",
        "conversation_history": json.dumps(history, ensure_ascii=False),
        "answer_choices": [real.text],
        "answer_idx": 0,
        "group": person.group,
    }


def draft_items(found: Sequence[Record]) -> list[Item]:
    """What the drafter is asked."""
    return [
        Item(record["key"], {"occasion": record["anchor_post"], "reply": record["answer_choices"][0]})
        for record in found
    ]


def with_options(record: Record, drafts: Sequence[str], seed: int) -> Record:
    """The question with all four options, the real reply in a place drawn by seed."""
    options = [record["answer_choices"][0], *(text.strip() for text in drafts)]
    order = random.Random(f"twinvoice:{seed}:{record['key']}:options").sample(range(4), 4)
    return {**record, "answer_choices": [options[place] for place in order], "answer_idx": order.index(0)}


def filter_items(found: Sequence[Record], *, history: bool) -> list[Item]:
    """What the filter is asked."""
    items = []
    for record in found:
        options = dict(zip(LETTERS, record["answer_choices"], strict=True))
        shown = {"history": json.loads(record["conversation_history"])} if history else {}
        items.append(Item(record["key"], {**shown, "occasion": record["anchor_post"], "options": options}))
    return items


def verdict(record: Record, seen: Pick | None, blind: Pick | None) -> str:
    """Why the filter drops a question; "" if it keeps it."""
    gold = LETTERS[record["answer_idx"]]
    if seen is None or blind is None:
        return "filter: no valid answer"
    if seen.answer != gold:
        return "filter: not answered from the history"
    if set(seen.equally_likely) - {gold}:
        return "filter: another option fits as well"
    if blind.answer == gold and not set(blind.equally_likely) - {gold}:
        return "filter: answered from the occasion alone"
    gold_text = record["answer_choices"][record["answer_idx"]]
    if any(tells(line, gold_text) for line in json.loads(record["conversation_history"])):
        return "rule: the history gives the reply away"
    return ""


def _found(args: argparse.Namespace, left_out: Counter[str], removed: Counter[str]) -> list[Record]:
    held_out = HeldOut(read_rows([str(path) for path in args.against or []]))
    return list(questions(args.sources, held_out, args.per_person, args.seed, left_out, removed))


def _rows(args: argparse.Namespace) -> Rows:
    left_out: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    found = _found(args, left_out, removed)
    stages = Stages(args.stages, args.models)
    drafts = stages.run(DRAFTS, draft_items(found))
    drafted = [with_options(one, drafts[one["key"]].replies, args.seed) for one in found if one["key"] in drafts]
    seen = stages.run(ANSWERS, filter_items(drafted, history=True))
    blind = stages.run(BLIND, filter_items(drafted, history=False))
    kept = []
    for record in drafted:
        key, picks = record["key"], (seen.get(record["key"]), blind.get(record["key"]))
        reason = verdict(record, *picks)
        shown = {"history": json.loads(record["conversation_history"]), "occasion": record["anchor_post"]}
        names = ("with history", "without history")
        result = {"options": record["answer_choices"], "right": LETTERS[record["answer_idx"]]}
        result |= {name: pick.model_dump() for name, pick in zip(names, picks, strict=True) if pick}
        if reason:
            stages.drop(key, shown, result, reason)
        else:
            stages.keep(key, shown, result)
            kept.append({name: value for name, value in record.items() if name != "key"})
    if not kept:
        raise ValueError(f"no question is left: {', '.join(f'{n:,} ({why})' for why, n in left_out.items())}")
    # A question without an answer of the filter is counted once, by its verdict.
    dropped = Counter({why: n for why, n in stages.dropped.items() if not why.startswith((ANSWERS.name, BLIND.name))})
    counts = +(left_out + dropped)
    return Rows(numbered(kept), counts, removed, task="twinvoice", models=stages.uses, decisions=stages.decisions)


def _plan(args: argparse.Namespace) -> list[str]:
    """The calls that `convert` would make, and their price; those of the filter as if every draft passed."""
    found = _found(args, Counter(), Counter())
    stages = Stages(args.stages, args.models)
    placeholder = [{**one, "answer_choices": one["answer_choices"] * 4} for one in found]
    filters = [(ANSWERS, True), (BLIND, False)]
    return [
        stages.plan(DRAFTS, draft_items(found)),
        *(stages.plan(stage, filter_items(placeholder, history=history)) for stage, history in filters),
    ]


def _letter(record: Mapping[str, object]) -> str:
    return LETTERS[int(str(record["answer_idx"]))]


BUILDER = Builder(
    "data.twinvoice_train",
    __doc__,
    _rows,
    group=side,
    groups="users and novels",
    answer_letter=_letter,
    sources="SRC",
    plan=_plan,
    options=[
        argument("--against", type=Path, nargs="+", metavar="FILE", help="evaluation files to leave out"),
        argument("--per-person", type=positive_int, default=PER_PERSON, help=f"replies (default {PER_PERSON})"),
        *model_options("twinvoice"),
    ],
)
build, main = BUILDER.build, BUILDER.main

if __name__ == "__main__":
    sys.exit(main())
