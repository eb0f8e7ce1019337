"""UserLLM task files from CommonsenseQA, Natural Questions (open) and PRISM.

    python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl judge.model=gpt-5-nano
    python -m data.userllm convert csqa.jsonl NQ-open.jsonl conversations.jsonl intents.jsonl --per-source 600 --out F

Each source file (JSON lines, or the hub's parquet) is recognised by its fields:

    CommonsenseQA      question {stem, choices}, as its authors publish it, or question and choices, as on the hub: MIT
    Natural Questions  question, answer (nq_open): CC BY-SA 3.0
    PRISM              conversations.jsonl of github.com/HannahKirk/prism-alignment: texts of people CC BY 4.0, of
                       models under their own terms
    intents            .jsonl that the first command wrote

For the first two, the assistant's words before the user's turn are generated here from templates, by seed. PRISM's
conversations give an opening and a second turn, and say which turn was the last.

PRISM has no intents, and the person's own message cannot serve as one: a policy that sees it can only copy it, and
copying lowers its score. If a record has an `intent`, that is used. For all others, a model writes a high-level
sentence (`intents`, see data/intents.py) into a file that `convert` reads. A conversation without a sentence is left
out.

Two more kinds of rows are left out: CommonsenseQA questions that contain one of their own options, because nobody
could ask them again without mentioning an option; and intents of fewer than two content words, because they cannot be
rephrased. The report counts every row that is left out.
"""

import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from data import intents
from data.builder_cli import Builder, Rows, argument
from data.intents import ADDS_NOTHING, Conversation, is_conversation, read_conversation
from data.reading import by_name, read_records, required_text
from data.rows import Record, numbered
from soul.cli.arguments import positive_int
from soul.metrics.lexical import content_words
from soul.row_fields import option_texts
from soul.tasks.userllm import choices_mentioned

OWN_OPTION = "CommonsenseQA: the question contains one of its own options"
NO_INTENT = (
    "PRISM: no intent; write intents with `python -m data.userllm intents` (it needs a judge) and give that file too"
)
NO_GOOD_INTENT = "PRISM: no sentence of the model passed the checks on intents"
SHORT_INTENT = "PRISM: the intent has fewer than two content words"
EVALUATED = "the question or the user is evaluated"
TWICE = "the same row twice"
NOT_DRAWN = "beyond the {count:,} rows that are kept of each source"
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


def convert(
    paths: Sequence[str | Path],
    per_source: int | None = None,
    seed: int = 0,
    *,
    equal_parts: bool = False,
    evaluated: Callable[[Record], bool] = lambda row: False,
) -> Rows:
    """The rows of the files as `extra_info` dicts, ordered by file name whatever the order of `paths`.

    Args:
        per_source: keep this many rows of each source, drawn by `seed`; of PRISM, half first and half later turns.
        evaluated: whether a row must be left out because it is evaluated.
        equal_parts: keep as many of each source as the smallest one has.
        seed: also selects the assistant's wording, together with the record's own text.
    """
    files = [path for path in by_name(paths) if path.name not in ADDS_NOTHING]
    written = intents.read(chain.from_iterable(read_records(path) for path in files))
    left_out: Counter[str] = Counter()
    rows: dict[str, Record] = {}
    for row in chain.from_iterable(_file_rows(path, written, seed, left_out) for path in files):
        key = json.dumps(row, sort_keys=True)
        left_out[TWICE] += key in rows
        rows[key] = row
    kept = [row for row in rows.values() if not evaluated(row)]
    left_out[EVALUATED] += len(rows) - len(kept)
    if equal_parts:
        per_source = min(Counter(row["source"] for row in kept).values(), default=0)
    if per_source is not None:
        available = len(kept)
        kept = _drawn(kept, per_source, seed)
        left_out[NOT_DRAWN.format(count=per_source)] = available - len(kept)
    return Rows(numbered(kept), +left_out)


def _drawn(rows: Sequence[Record], count: int, seed: int) -> list[Record]:
    """`count` rows of each source, in their order; all of them if there are not more."""
    places: list[int] = []
    for source in dict.fromkeys(row["source"] for row in rows):
        draw = random.Random(f"userllm:{seed}:{source}")
        first, later = (
            [place for place, row in enumerate(rows) if row["source"] == source and (row["turn"] > 0) is wanted]
            for wanted in (False, True)
        )
        half = max(min(len(later), count // 2), count - len(first))  # if one kind runs short, take more of the other
        for candidates, share in ((later, half), (first, count - half)):
            places += draw.sample(candidates, min(max(0, share), len(candidates)))
    return [rows[place] for place in sorted(places)]


def _file_rows(path: Path, written: Mapping[str, str], seed: int, left_out: Counter[str]) -> Iterator[Record]:
    for where, raw in read_records(path):
        if isinstance(raw.get("question"), Mapping):  # CommonsenseQA's own form
            raw = {**raw, **raw["question"], "question": raw["question"].get("stem")}
        fields = set(raw)
        if {"question", "choices"} <= fields:
            yield from _commonsense(where, raw, seed, left_out)
        elif {"question", "answer"} <= fields:
            yield _natural(where, raw, seed)
        elif is_conversation(raw):
            yield from _prism(read_conversation(where, raw), written, left_out)
        elif not intents.is_written(raw):
            raise ValueError(
                f"{where}: fields {sorted(fields)} are none of the known ones: question and choices (CommonsenseQA), "
                "question and answer (nq_open), conversation_history (PRISM), key, answer and reason (intents)"
            )


def _commonsense(where: str, raw: Mapping[str, Any], seed: int, left_out: Counter[str]) -> Iterator[Record]:
    question = " ".join(required_text(where, raw, "question").split())
    try:
        choices = option_texts(raw["choices"])
    except ValueError as error:
        raise ValueError(f"{where}: field 'choices': {error}") from error
    if choices_mentioned(choices, question)[0]:
        left_out[OWN_OPTION] += 1
        return
    history = f"User: {question} The choices: {', '.join(choices)}.\nAssistant: {_pick(UNSURE, seed, question)}"
    concept = str(raw.get("question_concept") or question).lower()
    yield _row(
        "commonsense_qa",
        f"Find out the answer to this question: {question}",
        f"csqa-{concept}",
        question=question,
        conversation_history=history,
        choices=json.dumps(choices, ensure_ascii=False),
    )


def _natural(where: str, raw: Mapping[str, Any], seed: int) -> Record:
    question = " ".join(required_text(where, raw, "question").split())
    answer = f"{_pick(NO_IDEA, seed, question)} {_pick(PROPOSALS, seed, question)}"
    history = f"User: {question}\nAssistant: {answer}"
    return _row(
        "natural_questions",
        f"Get an answer to this question: {question}",
        f"nq-{question.lower()}",
        question=question,
        conversation_history=history,
    )


def _prism(conversation: Conversation, written: Mapping[str, str], left_out: Counter[str]) -> Iterator[Record]:
    intent = conversation.intent or written.get(conversation.key)
    if not intent or len(content_words(intent)) < 2:
        reason = NO_INTENT if intent is None else NO_GOOD_INTENT if not intent else SHORT_INTENT
        left_out[reason] += len(conversation.tested)
        return
    history = f"User: {conversation.user_turns[0]}\nAssistant: {conversation.reply}"
    for turn in range(len(conversation.tested)):
        yield _row(
            "prism",
            intent,
            f"prism-{conversation.key}",
            conversation_history=history if turn else "",
            is_last_turn=len(conversation.user_turns) == turn + 1,
            turn=turn,
            user_id=conversation.user_id,
        )


def _row(source: str, intent: str, group: str, **fields: Any) -> Record:
    """A row of the first turn, with no question but the intent, no options and no user, unless `fields` say so."""
    return {
        "question": intent,
        "source": source,
        "intent": intent,
        "conversation_history": "",
        "choices": "[]",
        "is_last_turn": False,
        "turn": 0,
        "group": " ".join(group.split()),
        "user_id": "",
        **fields,
    }


def _pick(texts: Sequence[str], seed: int, key: str) -> str:
    # Chosen by the record's own text, so that a file gets the same wording alone and together with others.
    return texts[int(hashlib.sha256(f"{seed}:{len(texts)}:{texts[0]}:{key}".encode()).hexdigest(), 16) % len(texts)]


BUILDER = Builder(
    "data.userllm",
    __doc__,
    lambda args: convert(args.sources, args.per_source, args.seed),
    sources="SRC",
    options=[
        argument("--per-source", type=positive_int, metavar="N", help="keep N rows of each source (paper: 600)"),
    ],
)


if __name__ == "__main__":
    sys.exit(intents.main(sys.argv[2:]) if sys.argv[1:2] == ["intents"] else BUILDER.main())
