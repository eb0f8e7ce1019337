"""FanToM task files from the official file, or questions about beliefs from the CSV files of the AutoToM repository.

    python -m data.fantom convert fantom_v1.json --test-conversations 18 --out data/sim_eval_data/fantom_val.parquet
    python -m data.fantom convert fantom_v1.json --test-conversations 18 \\
        --train-out data/sim_rl_data/fantom_rl_train.parquet --val-out data/sim_eval_data/fantom_val.parquet
    python -m data.fantom convert FANToM_tom_belief_*.csv --out beliefs.parquet

Source: FanToM (github.com/skywalker023/fantom, MIT), "only for evaluation purposes". The official file holds all scored
questions, 10,422 of them. The paper's test set is 18 of its conversations; the paper does not name them, so --seed
draws them here, and the rest is training data. All questions about a conversation stay on one side, including those
about its short excerpts. An entry of the file is one set of questions about one piece of information. Of its questions

    beliefQAs                                             become choices between the right and the wrong belief
    answerabilityQA_list, infoAccessibilityQA_list        ask for all names
    answerabilityQAs_binary, infoAccessibilityQAs_binary  ask yes or no
    factQA                                                is shown with the others; it is no row of its own

The official code also asks for each belief in free words and compares sentence embeddings; here they are asked as
choices only. Rows show the short context. Some people missed another part of the conversation: "no:long" means that
only the full conversation shows why the answer is no. As in the official code, such questions are left out.

The CSV files (github.com/SCAI-JHU/AutoToM, Apache-2.0, benchmarks/full_data_formatted) hold 15 % of the questions, all
about beliefs. A file's name states what its rows do not: first or second order, and whether the person asked about
could have heard the information. In these files the right answer is always the first choice, so choices are shuffled.
"""

import argparse
import hashlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.cluster.hierarchy import DisjointSet

from data.builder_cli import Builder, Draw, Rows
from data.reading import by_name, read_csv, read_records, text_list
from data.rows import Record, numbered
from soul.tasks.fantom import TELLING_LINE

Entry = Mapping[str, Any]  # one set of questions of the official file, or a question
NO_IN_THE_FULL_CONVERSATION = "no:long"
_NAME = re.compile(r"tom[_:]belief[_:](accessible|inaccessible)_.*(first-order|second-order)\.csv$")

# ---- AutoToM's CSV files ----


def convert(paths: Sequence[str | Path], seed: int = 0) -> list[Record]:
    """The rows of FanToM CSV files as `extra_info` dicts, ordered by file name whatever the order of `paths`.

    The place of the right answer depends only on (seed, file name, row in that file). `set_id` names the conversation.
    """
    records: list[Record] = []
    for path in by_name(paths):
        matched = _NAME.search(path.name)
        if not matched:
            raise ValueError(
                f"{path}: the file name must tell accessibility and order, as the published one does: "
                "FANToM_tom_belief_inaccessible_short_context_first-order.csv"
            )
        accessibility, order = matched.groups()
        kind = {"question_type": f"tom:belief:{accessibility}:multiple-choice", "tom_type": order}
        for number, (where, raw) in enumerate(read_csv(path), start=1):
            rng = random.Random(f"fantom:{seed}:{path.name.replace(':', '_')}:{number}")
            fields = {**_fields(where, raw, rng), **kind, "missed_info_accessibility": accessibility}
            records.append({"index": len(records), **fields})
    set_ids = conversation_ids([record["context"] for record in records])
    return [{**record, "set_id": set_ids[record["context"]]} for record in records]


def conversation_ids(contexts: Sequence[str]) -> dict[str, str]:
    """Context -> id of its conversation: 12 hex digits, made from the opening line.

    The files hold overlapping excerpts of one conversation, most with the same start and different ends.
    Excerpts that share a long line are one conversation, and take the smallest of their ids.
    """
    ids = {context: hashlib.sha256(context.split("\n")[0].encode()).hexdigest()[:12] for context in contexts}
    excerpts, first = DisjointSet(ids), dict[str, str]()
    for context in ids:
        for line in context.split("\n"):
            if len(line) >= TELLING_LINE:
                excerpts.merge(first.setdefault(line, context), context)
    return {context: min(ids[each] for each in group) for group in excerpts.subsets() for context in group}


def _fields(where: str, raw: dict[str, str], rng: random.Random) -> Record:
    choices = text_list(where, raw, "answer_choices")
    if len(choices) != 2 or choices.count(raw["gt_answer"]) != 1:
        raise ValueError(
            f"{where}: 'answer_choices' must be two texts, one of them the 'gt_answer', got {choices!r:.99}"
        )
    wrong = next(choice for choice in choices if choice != raw["gt_answer"])
    rng.shuffle(choices)
    return {
        "context": raw["context"],
        "question": raw["question"],
        "answer_choices": choices,
        "correct_answer": choices.index(raw["gt_answer"]),
        "wrong_answer": wrong,
    }


# ---- the official file ----


def convert_official(path: Path, seed: int = 0) -> Rows:
    """All scored questions of the official file as `extra_info` dicts, in its order.

    The place of a right belief depends only on (seed, set id, number of the question).
    """
    left_out: Counter[str] = Counter()
    rows: list[Record] = []
    for _, entry in read_records(path):
        shared = {"context": entry["short_context"], "set_id": entry["set_id"]}  # conversation, part, set: "12-0-1"
        rows += ({**shared, **record} for record in _questions(entry, seed, left_out))
    return Rows(numbered(rows), left_out)


def _questions(entry: Entry, seed: int, left_out: Counter[str]) -> Iterator[Record]:
    fact = entry["factQA"]
    target, information = f"Target: {fact['question']}", f"Information: {fact['question']} {fact['correct_answer']}"
    for number, belief in enumerate(entry["beliefQAs"]):
        yield _choice(belief, random.Random(f"fantom:{seed}:{entry['set_id']}:{number}"))
    for kind, about in (("answerability", target), ("infoAccessibility", information)):
        names = entry[f"{kind}QA_list"]
        if names is not None and not names["correct_answer"]:
            left_out["a list question whose answer is nobody"] += 1
        elif names is not None:
            answers = {key: json.dumps(names.get(key, [])) for key in ("correct_answer", "wrong_answer")}
            yield _record(names, about, **answers)
    for kind, about in (("answerability", target), ("infoAccessibility", information)):
        for question in entry[f"{kind}QAs_binary"]:
            answer = question["correct_answer"].strip().lower()
            if answer == NO_IN_THE_FULL_CONVERSATION:
                left_out["a yes-or-no question whose no only the full conversation shows"] += 1
            elif answer not in ("yes", "no"):
                left_out[f"a yes-or-no question whose answer is {answer!r}"] += 1
            else:
                yield _record(question, about, correct_answer=answer)


def _choice(belief: Entry, rng: random.Random) -> Record:
    choices = [belief["correct_answer"], belief["wrong_answer"]]
    rng.shuffle(choices)
    return _record(
        belief,
        "",
        question_type=f"{belief['question_type']}:multiple-choice",
        tom_type=belief.get("tom_type", ""),
        answer_choices=json.dumps(choices, ensure_ascii=False),
        correct_answer=str(choices.index(belief["correct_answer"])),
        wrong_answer=belief["wrong_answer"],
    )


def _record(question: Entry, about: str, **fields: str) -> Record:
    """A row without its context. All columns are texts, because the kinds of questions share them."""
    return {
        "question": question["question"],
        "extra_info": about,
        "question_type": question["question_type"],
        "tom_type": "",
        "missed_info_accessibility": question.get("missed_info_accessibility", ""),
        "answer_choices": "[]",
        "wrong_answer": "",
        **fields,
    }


# ---- the command ----


def _rows(args: argparse.Namespace) -> Rows:
    official = [path for path in args.sources if path.suffix == ".json"]
    if official and len(args.sources) > 1:
        raise ValueError("give fantom_v1.json alone, or CSV files: the questions of the CSVs are all in the JSON file")
    if official:
        rows = convert_official(official[0], args.seed)
    else:
        rows = Rows(convert(args.sources, args.seed), notes=["the CSV files hold questions about beliefs only"])
    counts = Counter(str(record["question_type"]).removeprefix("tom:") for record in rows.records)
    kinds = "questions read: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return rows._replace(notes=[kinds, *rows.notes])


BUILDER = Builder(
    "data.fantom",
    __doc__,
    _rows,
    sources="fantom_v1.json | SRC.csv",
    draw=Draw(
        "--test-conversations",
        "N whole conversations (paper: 18)",
        group=lambda record: str(record["set_id"]).partition("-")[0],  # conversation, part, set: "12-0-1"
        groups="conversations",
        of_rows=False,
    ),
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
