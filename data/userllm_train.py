"""UserLLM training files: a third each of CommonsenseQA, Natural Questions and PRISM, with intents written by a model.

    python -m data.userllm_train convert train_rand_split.jsonl NQ-open.train.jsonl conversations.jsonl \\
        --against userllm_val.parquet --out FILE --stages FOLDER --models intent_writer.model=gpt-5-nano

`data.userllm` says how the sources are read. PRISM is split by user: conversations of users that the evaluation file
holds are left out before a model is asked. Of the others, 2,000 are drawn by seed, and the intent writer
describes each in one high-level sentence, with the checks of `data.intents`: a sentence that copies five words in a row
is dropped, and one that shares content words with the messages is asked for once more.
"""

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

from data import intents, userllm
from data.builder_cli import Builder, Rows
from data.intents import Conversation
from data.model_stages import Stages, is_evaluated, model_options
from soul.files.whole_file import write_whole

CONVERSATIONS = 2000  # of PRISM; most give two rows
EVALUATED = "PRISM: conversations of a user that is evaluated"


def _drawn(args: argparse.Namespace, left_out: Counter[str]) -> tuple[list[Path], list[Conversation]]:
    """The files of questions, and the conversations to write intents for: of users that are not evaluated."""
    prism = [path for path in args.sources if path.name == "conversations.jsonl"]
    evaluated, found = is_evaluated("userllm", args), []
    for one in sorted(intents.conversations(prism), key=lambda one: one.key):
        row = {"source": "prism", "intent": "None.", "group": f"prism-{one.key}", "user_id": one.user_id, "turn": 0}
        if evaluated(row):
            left_out[EVALUATED] += 1
        else:
            found.append(one)
    drawn = random.Random(f"userllm:{args.seed}").sample(found, min(CONVERSATIONS, len(found)))
    left_out[f"PRISM: conversations beyond the {CONVERSATIONS:,} that are drawn"] += len(found) - len(drawn)
    return [path for path in args.sources if path not in prism], drawn


def _rows(args: argparse.Namespace) -> Rows:
    left_out: Counter[str] = Counter()
    questions, drawn = _drawn(args, left_out)
    stages = Stages.from_args(args)
    written = stages.run(intents.INTENTS, intents.items(drawn)) if drawn else {}
    # As files, because that is what `data.userllm` reads: PRISM's conversations that have an intent, and the intents.
    args.stages.mkdir(parents=True, exist_ok=True)
    kept = [one for one in drawn if one.key in written]
    prism = args.stages / "kept_conversations.jsonl"
    write_whole(prism, (json.dumps(_record(one, written[one.key].intent.strip())) + "\n" for one in kept))
    files = [*questions, *([prism] if kept else [])]
    rows = userllm.convert(files, seed=args.seed, equal_parts=True, evaluated=is_evaluated("userllm", args))
    counts = +(left_out + stages.dropped + Counter(rows.left_out))
    return Rows(rows.records, counts, task="userllm", models=stages.uses, dropped=stages.left_out)


def _record(one: Conversation, intent: str) -> dict[str, object]:
    """A conversation in PRISM's form, with its intent."""
    turns: list[dict[str, object]] = []
    for number, text in enumerate(one.user_turns):
        turns.append({"turn": number, "role": "user", "content": text})
        if number == 0 and one.reply:
            turns.append({"turn": 0, "role": "model", "content": one.reply, "if_chosen": True})
    return {"conversation_id": one.key, "user_id": one.user_id, "conversation_history": turns, "intent": intent}


def _plan(args: argparse.Namespace) -> list[str]:
    """The calls that `convert` would make, and their price."""
    _, drawn = _drawn(args, Counter())
    return [Stages(args.stages, args.models).plan(intents.INTENTS, intents.items(drawn))] if drawn else []


BUILDER = Builder(
    "data.userllm_train",
    __doc__,
    _rows,
    sources="SRC",
    plan=_plan,
    options=model_options("userllm"),
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
