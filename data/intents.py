"""Let a model write high-level intents for PRISM's conversations, which `python -m data.userllm convert` then reads.

    python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl --dry-run judge.model=gpt-5-nano
    python -m data.userllm intents conversations.jsonl --limit 400 --out intents.jsonl judge.model=gpt-5-nano

The model is the judge, with the usual settings (docs/judge.md): JUDGE_MODEL_NAME, OPENAI_API_KEY and OPENAI_BASE_URL,
or judge.KEY=VALUE on the command line. The plan and its price are printed before the first call; --dry-run stops there.

The output has one line for each conversation, written as soon as its intent is known. The same command continues after
an interruption, and a larger --limit adds to the same file: conversations are drawn by seed, and the first 100 are
among the first 400. Answers are also cached beside the file, so you never pay for the same call twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, Field

from data.built import BadSource
from data.prism import ADDS_NOTHING, Conversation, is_conversation, read_conversation, read_openings
from data.reading import cut_torn_line, read_json_lines
from soul.cli.arguments import output_file, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import PERMANENT, SYSTEMIC, BadSettings, JudgeFailure
from soul.judge import Endpoint, Gateway, GatewaySettings, Judge
from soul.judge.call.usage import Usage
from soul.judge.cli_overrides import sections_of
from soul.judge.ledger import money
from soul.leaks.quotations import runs
from soul.metrics.lexical import content_words, words
from soul.prompts import load_prompt

PROMPT = load_prompt("userllm/intent")
RUN = 5  # consecutive words that an intent may not share with a message
SHORTEST, LONGEST = 3, 30  # words of an intent; the prompt asks for 4 to 20
SEEN_CHARS = 4000  # characters of a message that the model sees
INCOMPLETE = 1
STOPS = PERMANENT | SYSTEMIC  # the next call would fail as well
_CHARS_PER_TOKEN = 4  # of English text, for the plan
_ANSWER_TOKENS = 40  # without reasoning


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

    def __bool__(self) -> bool:
        return bool(self.hard or self.shared)

    @property
    def reason(self) -> str:
        """The faults in words, for the model's second attempt."""
        shared = [f"it uses words of the messages: {', '.join(self.shared)}"] if self.shared else []
        return "; ".join([*self.hard, *shared])


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


@dataclass(frozen=True)
class Written:
    """An intent and the content words that it shares with the messages; "" if no sentence passed the checks."""

    intent: str
    shared: tuple[str, ...] = ()


async def write_intent(judge: Judge, messages: Sequence[str]) -> Written:
    """Ask for a sentence, and once more if the first one has a fault."""
    data: dict[str, Any] = {"messages": [message[:SEEN_CHARS] for message in messages]}
    first = (await judge.ask(HighLevelIntent, PROMPT, data)).intent.strip()
    tried = [(first, faults(first, messages))]
    if tried[0][1]:
        again = {**data, "rejected": first, "reason": tried[0][1].reason}
        second = (await judge.ask(HighLevelIntent, PROMPT, again)).intent.strip()
        tried.append((second, faults(second, messages)))
    usable = [Written(intent, fault.shared) for intent, fault in tried if not fault.hard]
    return min(usable, key=lambda written: len(written.shared), default=Written(""))


def is_written(record: Mapping[str, Any]) -> bool:
    """Whether a JSON line is one that this module wrote."""
    return {"conversation", "intent", "prompt"} <= set(record)


def read(lines: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, str]:
    """Conversation -> intent, from the lines that this module wrote; "" if no sentence passed the checks."""
    return {str(record["conversation"]): str(record["intent"]) for _, record in lines if is_written(record)}


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


class Output:
    """The file with the intents: one line each, in the order in which they were written."""

    def __init__(self, path: Path, model: str) -> None:
        self.path, self.model = path, model
        self.done: dict[str, str] = {}
        if path.exists():
            cut_torn_line(path)
            records = [record for _, record in read_json_lines(path)]
            others = {f"{r.get('model')} by {r.get('prompt')}" for r in records} - {f"{model} by {PROMPT.id}"}
            if others:
                raise ValueError(f"{path} holds intents of {', '.join(sorted(others))}: name another file for {model}")
            self.done = read((str(path), record) for record in records)

    def add(self, file: TextIO, key: str, written: Written) -> None:
        """Append a line and flush it."""
        self.done[key] = written.intent
        line = {
            "conversation": key,
            "intent": written.intent,
            "shared_words": list(written.shared),
            "model": self.model,
            "prompt": PROMPT.id,
        }
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.flush()


def plan(wanted: Sequence[Conversation], endpoint: Endpoint) -> str:
    """How many calls will be made, and what they cost."""
    sent = sum(len(PROMPT) + sum(min(SEEN_CHARS, len(text)) for text in one.tested) for one in wanted)
    prompt, answer = sent // _CHARS_PER_TOKEN, _ANSWER_TOKENS * len(wanted)
    price = "price unknown: set judge.price_in and judge.price_out, in US dollars per million tokens"
    if endpoint.priced:
        cost = endpoint.cost(prompt, 0, answer)
        price = f"about ${cost:,.4f}, at most twice that, plus what the model spends on reasoning"
    return (
        f"{len(wanted):,} calls to {endpoint.name}, at most {2 * len(wanted):,} if every sentence must be asked for "
        f"again; about {prompt:,} tokens in and {answer:,} out; {price}"
    )


async def write_all(judge: Judge, wanted: Sequence[Conversation], output: Output) -> list[JudgeFailure]:
    """Write the intents of these conversations. Returns the failures; a later run asks for those again."""
    failed: list[JudgeFailure] = []
    step = max(1, len(wanted) // 10)

    async def one(file: TextIO, conversation: Conversation) -> None:
        if any(failure.cause in STOPS for failure in failed):
            return  # every further call would fail as well
        try:
            output.add(file, conversation.key, await write_intent(judge, conversation.tested))
        except JudgeFailure as failure:
            failed.append(failure)
        if (done := len(output.done) - before + len(failed)) % step == 0:
            print(f"{done:,} of {len(wanted):,}", file=sys.stderr, flush=True)

    before = len(output.done)
    output.path.parent.mkdir(parents=True, exist_ok=True)
    with output.path.open("a", encoding="utf-8") as file:
        await asyncio.gather(*(one(file, conversation) for conversation in wanted))
    return failed


async def _run(args: argparse.Namespace, settings: GatewaySettings) -> int:
    output = Output(args.out, settings.judge.model)
    available = sorted(conversations(args.sources), key=lambda one: one.key)
    drawn = random.Random(f"intents:{args.seed}").sample(available, len(available))[: args.limit]
    wanted = [one for one in drawn if one.key not in output.done]
    done = len(drawn) - len(wanted)
    print(f"{len(drawn):,} of {len(available):,} conversations that have no intent of their own; {done:,} are done")
    print(plan(wanted, settings.judge), flush=True)
    if args.dry_run:
        return 0
    gateway = Gateway.connect(settings, cache_dir=Path(f"{args.out}.cache"))
    try:
        failed = await write_all(gateway.judge, wanted, output)
    finally:
        await gateway.close()
    _summarise(output, drawn, failed, gateway.usage().get("judge", Usage()))
    return INCOMPLETE if failed else 0


def _summarise(output: Output, drawn: Sequence[Conversation], failed: Sequence[JudgeFailure], spent: Usage) -> None:
    intents = [output.done[one.key] for one in drawn if one.key in output.done]
    sharing = sum(bool(faults(output.done[one.key], one.tested).shared) for one in drawn if output.done.get(one.key))
    print(f"{output.path}: {sum(map(bool, intents)):,} intents, {sharing:,} of which share a word with the messages")
    if dropped := sum(not intent for intent in intents):
        print(f"left out: {dropped:,} (two sentences of the model failed the checks)")
    if missing := len(drawn) - len(intents):
        print(f"not written: {missing:,}; run the same command to ask for them again")
    for cause, count in Counter(failure.cause for failure in failed).items():
        detail = next(failure.detail for failure in failed if failure.cause == cause)
        print(f"failed: {count:,} ({cause}), for instance: {detail}")
    print(f"{spent.calls:,} calls, {spent.cache_hits:,} of them answered from the cache; {money(spent)}")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Write the intents. Returns the exit code: 0, or 1 if intents are missing."""
    parser = Parser(prog="python -m data.userllm intents", description=__doc__)
    parser.add_argument(
        "words", nargs="+", metavar="SRC | judge.KEY=VALUE", help="PRISM's files; settings of the judge"
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
    sections = sections_of([word for word in args.words if "=" in word])
    try:
        return asyncio.run(_run(args, GatewaySettings.from_sections(sections)))
    except KeyboardInterrupt:
        print(f"{args.out} keeps what was written.", file=sys.stderr)
        raise
    except ValueError as error:
        raise BadSource(f"data.userllm intents: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
