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

Sentences of the occasion that give the reply away are blanked ("[...]"), and such lines of the history are removed. The
place of the real reply is drawn by seed. A question of a user or novel that the evaluation holds is left out before a
model is asked.
"""

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, Field

from data.builder_cli import Builder, Rows
from data.model_stages import Item, Stage, Stages, is_evaluated, model_options
from data.rows import Record, numbered
from data.twinvoice import HISTORY
from data.twinvoice_people import Person, is_english, read
from soul.leaks.quotations import runs
from soul.metrics.lexical import words
from soul.prompts import load_prompt
from soul.record import digest
from soul.rows.review import LeftOut

BEFORE = 12  # texts of a person before the reply, at least
REPLY = (6, 60)  # words of a reply
RUN = 5  # consecutive words that an option may not share with the real reply
TOLD_RUN = 6  # consecutive words that two texts do not share by chance
LENGTH = (0.6, 1.6)  # words of an option, as a share of the real reply's
PER_PERSON = 1
LETTERS = "ABCD"
EVALUATED = "questions: the user or the novel is evaluated"
BLANK = "[...]"
# A word; or one character of a script without spaces between words.
_WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff]|[^\W_\u2e80-\u9fff\uac00-\ud7ff]+(?:['’][^\W_]+)*")
_SENTENCE = re.compile(r"[^.!?。！？“”\"\n]+[.!?。！？]*")

# ---- texts that give the reply away ----


def tells(text: str, gold: str) -> bool:
    """Return True if a text gives a reply away: they share a run of words, or one contains the other."""
    told, reply = _words(text), _words(gold)
    if told == reply:
        return bool(told)
    if not set(runs(told, TOLD_RUN)).isdisjoint(runs(reply, TOLD_RUN)):
        return True
    short, long = sorted((told, reply), key=len)
    return len(short) >= 3 and tuple(short) in runs(long, len(short))


def blank_out(text: str, gold: str) -> tuple[str, int]:
    """Replace each sentence, or quoted part of one, that gives the reply away by "[...]". Returns text and count."""
    count = 0

    def blanked(sentence: re.Match[str]) -> str:
        nonlocal count
        if not tells(sentence.group(), gold):
            return sentence.group()
        count += 1
        return f" {BLANK}" if sentence.group()[0].isspace() else BLANK

    text = _SENTENCE.sub(blanked, text)
    return re.sub(rf"{re.escape(BLANK)}(?:\s*{re.escape(BLANK)})+", BLANK, text), count


def _words(text: str) -> list[str]:
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


# ---- the questions ----


class Drafts(BaseModel):
    """The drafter's answer."""

    replies: list[str] = Field(min_length=3, max_length=3)


class Pick(BaseModel):
    """The filter's answer."""

    reasoning: str
    answer: Literal["A", "B", "C", "D"]
    equally_likely: list[str] = []


def draft_fault(item: Item, answer: Drafts) -> str:
    """Return what is wrong with the wrong options."""
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


def questions(args: argparse.Namespace, left_out: Counter[str], removed: Counter[str]) -> Iterator[Record]:
    """The questions as rows with one option, the real reply. `key` names them."""
    evaluated = is_evaluated("twinvoice", args)
    for person in (one for path in args.sources for one in read(path, left_out)):
        places = [
            place
            for place, one in enumerate(person.said)
            if place >= BEFORE and one.occasion and REPLY[0] <= len(words(one.text)) <= REPLY[1]
        ]
        left_out[f"people: no reply after {BEFORE} earlier texts"] += not places
        rng = random.Random(f"twinvoice:{args.seed}:{person.group}")
        for place in sorted(rng.sample(places, min(PER_PERSON, len(places)))):
            if not (is_english(person.said[place].text) and is_english(person.said[place].occasion)):
                left_out["questions: the reply or the occasion is not English"] += 1
                continue
            record = _question(person, place, removed)
            if record is None:
                left_out["questions: the history or the occasion gives the reply away"] += 1
            elif evaluated({**record, "answer_choices": ["one", "other"]}):
                left_out[EVALUATED] += 1
            else:
                # The hash tells people of one name in two files apart, and texts that were added to a file.
                yield {"key": f"{person.group}/{place}/{digest(record)[:12]}", **record}


def _question(person: Person, place: int, removed: Counter[str]) -> Record | None:
    """A question without what gives the reply away; None if too little is left of its occasion or history."""
    real = person.said[place]
    shown = [one.text for one in person.said[:place]][-HISTORY:]
    history = [line for line in shown if not tells(line, real.text)]
    removed["lines of the history with the right reply"] += len(shown) - len(history)
    occasion, blanked = blank_out(real.occasion, real.text)
    removed["sentences of the occasion with the right reply"] += blanked
    if len(history) < BEFORE or (blanked and len(_words(occasion)) < TOLD_RUN):
        return None
    return {
        "question": occasion,
        "anchor_post": occasion,
        "dimension": person.dimension,
        "speaker": person.speaker,
        "persona": "",
        "conversation_history": json.dumps(history, ensure_ascii=False),
        "answer_choices": [real.text],
        "answer_idx": 0,
        "group": person.group,
    }


def draft_items(found: Sequence[Record]) -> list[Item]:
    """The questions for the drafter."""
    return [Item(one["key"], {"occasion": one["anchor_post"], "reply": one["answer_choices"][0]}) for one in found]


def with_options(record: Record, drafts: Sequence[str], seed: int) -> Record:
    """The question with all four options, the real reply in a place drawn by seed."""
    options = [record["answer_choices"][0], *(text.strip() for text in drafts)]
    order = random.Random(f"twinvoice:{seed}:{record['key']}:options").sample(range(4), 4)
    return {**record, "answer_choices": [options[place] for place in order], "answer_idx": order.index(0)}


def filter_items(found: Sequence[Record], *, history: bool) -> list[Item]:
    """The questions for the filter."""
    items = []
    for record in found:
        options = dict(zip(LETTERS, record["answer_choices"], strict=True))
        shown = {"history": json.loads(record["conversation_history"])} if history else {}
        items.append(Item(record["key"], {**shown, "occasion": record["anchor_post"], "options": options}))
    return items


def verdict(record: Record, seen: Pick | None, blind: Pick | None) -> str:
    """Return why the filter drops a question; "" if it keeps it."""
    gold = LETTERS[record["answer_idx"]]
    if seen is None or blind is None:
        return "filter: no valid answer"
    if seen.answer != gold:
        return "filter: not answered from the history"
    if set(seen.equally_likely) - {gold}:
        return "filter: another option fits as well"
    if blind.answer == gold and not set(blind.equally_likely) - {gold}:
        return "filter: answered from the occasion alone"
    return ""


def _rows(args: argparse.Namespace) -> Rows:
    left_out: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    found = list(questions(args, left_out, removed))
    stages = Stages.from_args(args)
    drafts = stages.run(DRAFTS, draft_items(found))
    drafted = [with_options(one, drafts[one["key"]].replies, args.seed) for one in found if one["key"] in drafts]
    seen = stages.run(ANSWERS, filter_items(drafted, history=True))
    blind = stages.run(BLIND, filter_items(drafted, history=False))
    # A question without an answer of the filter is counted once, by its verdict.
    dropped = Counter({why: n for why, n in stages.dropped.items() if why.startswith(DRAFTS.name)})
    stages.left_out = [one for one in stages.left_out if one.reason.startswith(DRAFTS.name)]
    kept = []
    for record in drafted:
        key = record["key"]
        picks = {"with history": seen.get(key), "without history": blind.get(key)}
        reason = "" if key in stages.keep else verdict(record, *picks.values())
        shown = {"history": json.loads(record["conversation_history"]), "occasion": record["anchor_post"]}
        result = {"options": record["answer_choices"], "right": LETTERS[record["answer_idx"]]}
        if reason:
            result |= {name: pick.model_dump() for name, pick in picks.items() if pick}
            stages.left_out.append(LeftOut(key, reason, shown, result, may_keep=True))
            dropped[reason] += 1
        else:
            kept.append({name: value for name, value in record.items() if name != "key"})
    rows = Rows(numbered(kept), +(left_out + dropped), removed, task="twinvoice")
    return rows._replace(models=stages.uses, dropped=stages.left_out)


def _plan(args: argparse.Namespace) -> list[str]:
    """The calls that `convert` would make, and their price; those of the filter as if every draft passed."""
    found = list(questions(args, Counter(), Counter()))
    stages = Stages.from_args(args)
    placeholder = [{**one, "answer_choices": one["answer_choices"] * 4} for one in found]
    return [
        stages.plan(DRAFTS, draft_items(found)),
        stages.plan(ANSWERS, filter_items(placeholder, history=True)),
        stages.plan(BLIND, filter_items(placeholder, history=False)),
    ]


BUILDER = Builder(
    "data.twinvoice_train",
    __doc__,
    _rows,
    sources="SRC",
    plan=_plan,
    options=model_options("twinvoice"),
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
