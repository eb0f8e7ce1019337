"""Let a model write high-level intents for PRISM's conversations, which `python -m data.userllm convert` then reads.

    python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl --dry-run judge.model=gpt-5-nano
    python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl judge.model=gpt-5-nano

The model is the role intent_writer, which has the judge's settings (docs/judge.md) unless you name its own:
JUDGE_MODEL_NAME, OPENAI_API_KEY and OPENAI_BASE_URL, or judge.KEY=VALUE and intent_writer.KEY=VALUE on the command
line. The plan and its price are printed before the first call; --dry-run stops there.

The output is the journal of a stage (`data.model_stages`): a line for each conversation, written as soon as its intent
is known. So the same command continues after an interruption, also kill -9, and asks nothing twice. A larger --limit
adds to the same file: conversations are drawn by seed, and the first 100 are among the first 400.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from data.builder_cli import BadSource, ModelUse, counted
from data.model_stages.roles import settings_of
from data.model_stages.stage import Item, Stage, Stages
from data.prism import ADDS_NOTHING, Conversation, is_conversation, read_conversation, read_openings
from data.reading import read_json_lines
from soul.cli.arguments import output_file, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.leaks.quotations import runs
from soul.metrics.lexical import content_words, words
from soul.prompts import load_prompt

PROMPT = load_prompt("userllm/intent")
RUN = 5  # consecutive words that an intent may not share with a message
SHORTEST, LONGEST = 3, 30  # words of an intent; the prompt asks for 4 to 20
SEEN_CHARS = 4000  # characters of a message that the model sees
# Fields of a line of the output, and of one that an earlier version wrote.
_LINE, _EARLIER_LINE = {"key", "answer", "reason", "prompt"}, {"conversation", "intent", "prompt"}


class HighLevelIntent(BaseModel):
    """What the model answers."""

    intent: str = Field(min_length=1)


@dataclass(frozen=True)
class Faults:
    """What is wrong with a sentence.

    Attributes:
        hard: faults that make it unusable.
        shared: content words that it shares with the messages; it is usable if the model writes no better one.
    """

    hard: tuple[str, ...]
    shared: tuple[str, ...]


def faults(intent: str, messages: Sequence[str]) -> Faults:
    """Check a sentence against the messages that it describes."""
    intent_words, hard = words(intent), []
    if not SHORTEST <= len(intent_words) <= LONGEST or "\n" in intent.strip():
        hard.append(f"it must be one sentence of {SHORTEST} to {LONGEST} words")
    elif len(content_words(intent)) < 2:
        hard.append("it says too little")
    message_runs = {run for message in messages for run in runs(words(message), RUN)}
    if copied := next((run for run in runs(intent_words, RUN) if run in message_runs), None):
        hard.append(f"it copies the messages: {' '.join(copied)!r}")
    used = {word for message in messages for word in content_words(message)}
    return Faults(tuple(hard), tuple(dict.fromkeys(word for word in content_words(intent) if word in used)))


def _faults(item: Item, answer: HighLevelIntent) -> Faults:
    return faults(answer.intent.strip(), item.data["messages"])


INTENTS = Stage(
    "intents",
    "intent_writer",
    PROMPT,
    HighLevelIntent,
    fault=lambda item, answer: "; ".join(_faults(item, answer).hard),
    answer_tokens=40,
    blemishes=lambda item, answer: [
        f"it uses the word {word!r} of the messages" for word in _faults(item, answer).shared
    ],
)


def items(wanted: Sequence[Conversation]) -> list[Item]:
    """What the stage asks about."""
    return [Item(one.key, {"messages": [text[:SEEN_CHARS] for text in one.tested]}) for one in wanted]


def is_written(record: Mapping[str, Any]) -> bool:
    """Whether a JSON line is one that this module wrote, now or in an earlier version."""
    return set(record) >= _LINE or set(record) >= _EARLIER_LINE


def read(lines: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Conversation -> intent, from the lines that this module wrote; "" if no sentence passed the checks."""
    return dict(_intent(where, record) for where, record in lines if is_written(record))


def _intent(where: str, record: Mapping[str, Any]) -> tuple[str, str]:
    if set(record) >= _EARLIER_LINE:
        return str(record["conversation"]), str(record["intent"])
    if record["reason"]:
        return str(record["key"]), ""
    answer = record["answer"]
    if not isinstance(answer, dict) or not isinstance(answer.get("intent"), str):
        raise ValueError(f"{where}: field 'answer' must hold an intent, got {answer!r:.80}")
    return str(record["key"]), answer["intent"].strip()


def conversations(paths: Sequence[Path]) -> list[Conversation]:
    """The conversations in these files that have no intent of their own, each once."""
    everything = (one for path in paths if path.name not in ADDS_NOTHING for one in _conversations(path))
    return list({one.key: one for one in everything if not one.intent}.values())


def _conversations(path: Path) -> Iterator[Conversation]:
    if path.suffix == ".csv":
        yield from read_openings(path)
        return
    for where, raw in read_json_lines(path):
        if is_conversation(raw):
            yield read_conversation(where, raw)
        elif not is_written(raw):
            raise ValueError(f"{where}: no conversation of PRISM; give conversations.jsonl or the table of openings")


def _run(args: argparse.Namespace, settings: Sequence[str]) -> None:
    settings_of(settings)  # a wrong setting is an error before anything is read
    available = sorted(conversations(args.sources), key=lambda one: one.key)
    drawn = random.Random(f"intents:{args.seed}").sample(available, len(available))[: args.limit]
    print(f"{len(drawn):,} of {len(available):,} conversations that have no intent of their own")
    stage, stages = replace(INTENTS, name=args.out.stem), Stages(args.out.parent, settings)
    if args.dry_run:
        print(stages.plan(stage, items(drawn)))
        return
    written = stages.run(stage, items(drawn))
    texts = {one.key: one.tested for one in drawn}
    sharing = sum(bool(faults(answer.intent, texts[key]).shared) for key, answer in written.items())
    print(f"{args.out}: {len(written):,} intents, {sharing:,} of which share a word with the messages")
    print(*counted("left out", stages.dropped), *map(_spent, stages.uses), sep="\n")


def _spent(use: ModelUse) -> str:
    price = "at an unknown price" if use.usd is None else f"for ${use.usd:,.4f}"
    return f"{use.calls:,} calls {price}, over all runs"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Write the intents; if calls failed, the exit code is 1."""
    parser = Parser(prog="python -m data.userllm intents", description=__doc__)
    parser.add_argument(
        "words", nargs="+", metavar="SRC | judge.KEY=VALUE", help="PRISM's files; settings of the model"
    )
    parser.add_argument("--out", type=output_file, required=True, metavar="FILE.jsonl")
    parser.add_argument(
        "--limit", type=positive_int, metavar="N", help="this many conversations, drawn by seed (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its price, and make no call")
    args = parser.parse_intermixed_args(arguments)
    args.sources = [Path(word) for word in args.words if "=" not in word]
    if not args.sources:
        raise BadSettings("Name PRISM's conversations.jsonl, or its table of openings.")
    if args.out.suffix != ".jsonl":
        raise BadSettings(f"--out {args.out}: the name must end in .jsonl, as `convert` reads it by that.")
    try:
        _run(args, [word for word in args.words if "=" in word])
    except ValueError as error:
        raise BadSource(f"data.userllm intents: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
