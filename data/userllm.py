"""UserLLM task files from CommonsenseQA, Natural Questions (open) and PRISM.

    python -m data.userllm convert csqa.jsonl NQ-open.jsonl conversations.jsonl --per-source 600 --out userllm.parquet

Each source file is known by its fields:

    CommonsenseQA      .jsonl with question, choices {label, text}: MIT
    Natural Questions  .jsonl with question, answer (nq_open): CC BY-SA 3.0
    PRISM              conversations.jsonl of github.com/HannahKirk/prism-alignment, or its table of opening prompts
                       by cluster (.csv with top_texts): texts of people CC BY 4.0, of models under their own terms

What the assistant says before the user's turn is made here, by template and seed, for the first two. PRISM's
conversations give an opening and a second turn, whose `is_last_turn` is the record's; the table gives openings alone,
so that nothing of it tests when to end. An intent is the record's `intent` or `intent_summary`; PRISM has none of its
own (the paper's were written by a model), so the opening prompt stands in for it.

Left out: questions of CommonsenseQA that hold one of their own options, as in "airplane" or "seaweed", where no way of
asking again could stay clear of the options; and intents of less than two content words, which cannot be put otherwise.
"""

import argparse
import ast
import csv
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.metrics.lexical import content_words
from agents.tasks.userllm import choices_mentioned
from data.built import Built, Converted, add_output_arguments, run, write_outputs
from data.rows import Record

_TURN = {"turn", "role", "content"}

UNSURE = (
    "Hmm, I could not say for certain which of these fits best. What would you pick yourself?",
    "Several of them seem possible to me. Can you tell me more, or which one you have in mind?",
    "I don't want to guess here. Which of the options do you think it is?",
    "That is a tricky one. Do you have a hunch what the right option might be?",
    "I am in two minds about this. Could you help me out and say what you believe the answer is?",
    "It could depend on how the question is meant. Which answer would you go for?",
)
NO_IDEA = (
    "I'm afraid I don't know that.",
    "That one escapes me, sorry.",
    "I have nothing reliable on this.",
    "I can't say that with any confidence.",
)
PROPOSALS = (
    "I could tell you some of the background of the subject instead. Shall I?",
    "What I can do is name a few curious facts from the same area. Would you like that?",
    "How about a similar question that many people ask? I know a good one.",
    "Maybe a short list of well-known names around this topic would interest you more?",
    "I would be glad to explain how such things come about in general. Is that all right?",
    "Shall we talk about something close to it that I know better?",
)


def convert(paths: Sequence[str | Path], per_source: int | None = None, seed: int = 0) -> list[Record]:
    """The rows of the files as `extra_info` dicts: file after file, by name, whatever the order of `paths`.

    `per_source` keeps so many rows of each source, drawn by `seed`; the wording of the assistant depends on `seed` and
    the record's own text. Raises ValueError naming file, line and field.
    """
    rows: list[Record] = []
    for path in sorted((Path(path) for path in paths), key=lambda path: path.name):
        rows += _file_rows(path, seed)
    keys = [json.dumps(row, sort_keys=True) for row in rows]
    if len(set(keys)) < len(keys):
        again = next(row for key, row in zip(keys, rows, strict=True) if keys.count(key) > 1)
        raise ValueError(f"a record is there twice ({again['source']}: {again['intent']!r}); give each file once")
    if per_source is not None:
        rows = [
            row for source in dict.fromkeys(r["source"] for r in rows) for row in _drawn(rows, source, per_source, seed)
        ]
    return [{"index": index, **row} for index, row in enumerate(rows)]


def _drawn(rows: Sequence[Record], source: str, count: int, seed: int) -> list[Record]:
    """`count` rows of a source in their order, or all where there are no more."""
    places = [place for place, row in enumerate(rows) if row["source"] == source]
    drawn = random.Random(f"userllm:{seed}:{source}").sample(places, min(count, len(places)))
    return [rows[place] for place in sorted(drawn)]


def _file_rows(path: Path, seed: int) -> Iterator[Record]:
    if path.suffix == ".csv":
        yield from _prism_openings(path)
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where}: not JSON ({error}); take the file from its source anew") from error
        yield from _reader(where, raw)(where, raw, seed)


def _reader(where: str, raw: Any) -> Callable[[str, Mapping[str, Any], int], Iterator[Record]]:
    fields = set(raw) if isinstance(raw, dict) else set()
    if {"question", "choices"} <= fields:
        return _commonsense
    if {"question", "answer"} <= fields:
        return _natural
    if "conversation_history" in fields:
        return _prism
    raise ValueError(
        f"{where}: fields {sorted(fields)} are none of the known: question and choices (CommonsenseQA), question and "
        "answer (nq_open), conversation_history (PRISM)"
    )


def _commonsense(where: str, raw: Mapping[str, Any], seed: int) -> Iterator[Record]:
    question = _text(where, raw, "question")
    choices = raw["choices"].get("text") if isinstance(raw["choices"], dict) else raw["choices"]
    if not (isinstance(choices, list) and len(choices) > 1 and all(isinstance(c, str) and c.strip() for c in choices)):
        raise ValueError(f"{where}: field 'choices' must hold at least two texts, got {choices!r:.80}")
    if choices_mentioned(choices, question)[0]:
        return
    history = f"User: {question} The choices: {', '.join(choices)}.\nAssistant: {_pick(UNSURE, seed, question)}"
    concept = str(raw.get("question_concept") or question).lower()
    yield _row(
        "commonsense_qa",
        f"Find out the answer to this question: {question}",
        f"csqa-{concept}",
        question=question,
        history=history,
        choices=choices,
    )


def _natural(where: str, raw: Mapping[str, Any], seed: int) -> Iterator[Record]:
    question = _text(where, raw, "question")
    answer = f"{_pick(NO_IDEA, seed, question)} {_pick(PROPOSALS, seed, question)}"
    history = f"User: {question}\nAssistant: {answer}"
    yield _row(
        "natural_questions",
        f"Get an answer to this question: {question}",
        f"nq-{question.lower()}",
        question=question,
        history=history,
    )


def _prism(where: str, raw: Mapping[str, Any], seed: int) -> Iterator[Record]:
    turns = raw["conversation_history"]
    if not (isinstance(turns, list) and all(isinstance(t, dict) and _TURN <= set(t) for t in turns)):
        raise ValueError(f"{where}: field 'conversation_history' must be a list of turns with turn, role and content")
    opening = min((t["turn"] for t in turns), default=0)
    users = {t["turn"] - opening: str(t["content"]).strip() for t in turns if t["role"] == "user"}
    # (Of the replies to one turn the participant chose one, and went on from there.)
    chosen = {
        t["turn"] - opening: str(t["content"]).strip() for t in turns if t["role"] == "model" and t.get("if_chosen")
    }
    if not users.get(0):
        raise ValueError(f"{where}: field 'conversation_history' does not begin with a turn of the user")
    intent = str(raw.get("intent") or raw.get("intent_summary") or users[0]).strip()
    if len(content_words(intent)) < 2:
        return
    group = f"prism-{raw.get('conversation_id') or users[0].lower()}"
    yield _row("prism", intent, group, is_last_turn=max(users) == 0)
    if users.get(1) and chosen.get(0):
        history = f"User: {users[0]}\nAssistant: {chosen[0]}"
        yield _row("prism", intent, group, history=history, is_last_turn=max(users) == 1, turn=1)


def _prism_openings(path: Path) -> Iterator[Record]:
    with path.open(newline="", encoding="utf-8") as lines:
        for number, raw in enumerate(csv.DictReader(lines), start=1):
            try:
                texts = ast.literal_eval(raw.get("top_texts") or "")
                valid = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
            except (ValueError, SyntaxError):
                valid = False
            if not valid:
                raise ValueError(f"{path}: row {number}: field 'top_texts' must be a Python list of texts")
            for text in texts:
                if len(content_words(text)) >= 2:
                    yield _row("prism", text.strip(), f"prism-{text.lower()}")


def _row(
    source: str,
    intent: str,
    group: str,
    *,
    question: str = "",
    history: str = "",
    choices: Sequence[str] = (),
    is_last_turn: bool = False,
    turn: int = 0,
) -> Record:
    return {
        "question": question or intent,
        "source": source,
        "intent": intent,
        "conversation_history": history,
        "choices": json.dumps(list(choices), ensure_ascii=False),
        "is_last_turn": is_last_turn,
        "turn": turn,
        "group": " ".join(group.split()),
    }


def _text(where: str, raw: Mapping[str, Any], field: str) -> str:
    value = raw[field]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: field '{field}' must be a text, got {value!r:.80}")
    return " ".join(value.split())


def _pick(texts: Sequence[str], seed: int, key: str) -> str:
    # (By the record's text, so that files given together or alone get the same wording.)
    return texts[int(hashlib.sha256(f"{seed}:{len(texts)}:{texts[0]}:{key}".encode()).hexdigest(), 16) % len(texts)]


def build(arguments: Sequence[str] | None = None) -> Built:
    """Writes the files that the command line asks for.

    Raises:
        ValueError: a source cannot be read; names file, record and field.
        OSError: a source is absent.
    """
    parser = argparse.ArgumentParser(prog="python -m data.userllm", description=(__doc__ or "").splitlines()[0])
    converting = parser.add_subparsers(dest="command", required=True).add_parser("convert", help="sources -> parquet")
    converting.add_argument("sources", type=Path, nargs="+", metavar="SRC")
    converting.add_argument("--per-source", type=int, metavar="N", help="keep N rows of each source (paper: 600)")
    add_output_arguments(converting)
    args = parser.parse_args(arguments)
    converted = Converted(convert(args.sources, args.per_source, args.seed), Counter())
    return write_outputs(args, "userllm", converted, lambda record: str(record["group"]), groups="questions")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; prints one line of counts for each file written, and what was left out."""
    run("data.userllm", build, arguments)


if __name__ == "__main__":
    main()
