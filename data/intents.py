"""Let a model write high-level intents for PRISM's conversations, which `python -m data.userllm convert` then reads.

    python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl --dry-run judge.model=gpt-5-nano
    python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl judge.model=gpt-5-nano

The source is `conversations.jsonl` of github.com/HannahKirk/prism-alignment. The model is the role intent_writer, which
has the judge's settings (docs/judge.md) unless you name its own: JUDGE_MODEL_NAME, OPENAI_API_KEY and OPENAI_BASE_URL,
or judge.KEY=VALUE and intent_writer.KEY=VALUE on the command line. The plan and its price are printed before the first
call; --dry-run stops there.

The output is the journal of a stage (`data.model_stages`): a line for each conversation, written as soon as its intent
is known. So the same command continues after an interruption, also kill -9, and asks nothing twice. A larger --limit
adds to the same file: conversations are drawn by seed, and the first 100 are among the first 400.
"""

import argparse
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from data.builder_cli import BadSource, counted
from data.model_stages import Item, Stage, Stages, settings_of
from data.reading import read_json_lines, required_text
from soul.cli.arguments import is_setting, output_file, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.leaks.quotations import runs
from soul.metrics.lexical import content_words, words
from soul.prompts import load_prompt

PROMPT = load_prompt("userllm/intent")
RUN = 5  # consecutive words that an intent may not share with a message
SHORTEST, LONGEST = 3, 30  # words of an intent; the prompt asks for 4 to 20
SEEN_CHARS = 4000  # characters of a message that the model sees
ADDS_NOTHING = frozenset({"utterances.jsonl", "survey.jsonl", "metadata.jsonl", "models.jsonl"})  # PRISM's other files

# ---- PRISM's conversations ----


class Conversation(NamedTuple):
    """One conversation.

    Attributes:
        user_turns: the person's texts, turn by turn; at least the opening.
        reply: the reply to the opening that the person chose; "" if there is none.
        intent: the record's own; "" if it has none.
    """

    key: str
    user_id: str
    user_turns: tuple[str, ...]
    reply: str
    intent: str

    @property
    def tested(self) -> tuple[str, ...]:
        """The messages that become rows: the opening, and the second turn of a conversation that has one."""
        return self.user_turns[: 2 if self.reply else 1]


def is_conversation(record: Mapping[str, Any]) -> bool:
    """Return True if a JSON line is a record of conversations.jsonl."""
    return "conversation_history" in record


def read_conversation(where: str, raw: Mapping[str, Any]) -> Conversation:
    """One record of conversations.jsonl."""
    turns = raw["conversation_history"]
    opening = min((t["turn"] for t in turns), default=0)
    users = {t["turn"] - opening: str(t["content"]).strip() for t in turns if t["role"] == "user"}
    # Several models reply to a turn. The participant chose one reply and went on from there.
    of_models = [t for t in turns if t["role"] == "model" and t.get("if_chosen")]
    chosen = {t["turn"] - opening: str(t["content"]).strip() for t in of_models}
    if not users.get(0):
        raise ValueError(f"{where}: field 'conversation_history' does not begin with a turn of the user")
    return Conversation(
        key=required_text(where, raw, "conversation_id"),
        user_id=str(raw.get("user_id") or ""),
        user_turns=tuple(users[turn] for turn in sorted(users)),
        reply=chosen.get(0, "") if users.get(1) else "",
        intent=str(raw.get("intent") or "").strip(),
    )


def conversations(paths: Sequence[Path]) -> list[Conversation]:
    """The conversations in these files that have no intent of their own, each once."""
    everything = (one for path in paths if path.name not in ADDS_NOTHING for one in _conversations(path))
    return list({one.key: one for one in everything if not one.intent}.values())


def _conversations(path: Path) -> Iterator[Conversation]:
    for where, raw in read_json_lines(path):
        if is_conversation(raw):
            yield read_conversation(where, raw)
        elif not is_written(raw):
            raise ValueError(f"{where}: no conversation of PRISM; give conversations.jsonl")


# ---- intents ----


class HighLevelIntent(BaseModel):
    """The model's answer."""

    intent: str = Field(min_length=1)


class Faults(NamedTuple):
    """Faults of a sentence.

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
    """The items of the stage."""
    return [Item(one.key, {"messages": [text[:SEEN_CHARS] for text in one.tested]}) for one in wanted]


def is_written(record: Mapping[str, Any]) -> bool:
    """Return True if a JSON line is one of the journal."""
    return {"key", "answer", "reason", "prompt"} <= set(record)


def read(lines: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Conversation -> intent, from the lines of the journal; "" if no sentence passed the checks."""
    written = (record for _, record in lines if is_written(record))
    return {str(one["key"]): "" if one["reason"] else one["answer"]["intent"].strip() for one in written}


# ---- the command ----


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
    (use,) = stages.uses
    price = "at an unknown price" if use.usd is None else f"for ${use.usd:,.4f}"
    print(*counted("left out", stages.dropped), f"{use.calls:,} calls {price}, over all runs", sep="\n")


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
    args = parser.parse_args(arguments)
    args.sources = [Path(word) for word in args.words if not is_setting(word)]
    if not args.sources:
        raise BadSettings("Name PRISM's conversations.jsonl.")
    if args.out.suffix != ".jsonl":
        raise BadSettings(f"--out {args.out}: the name must end in .jsonl, as `convert` reads it by that.")
    try:
        _run(args, [word for word in args.words if is_setting(word)])
    except ValueError as error:
        raise BadSource(f"data.userllm intents: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
