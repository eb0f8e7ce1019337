"""Models that write and check training items, so that nothing is asked twice and every drop has a reason.

    drafter         writes wrong options that could be right (TwinVoice)
    filter          answers a drafted question, to see whether it can be answered and needs the history (TwinVoice)
    goal_writer     describes what the user of a conversation wants (MirrorBench)
    intent_writer   writes a high-level sentence in place of a person's message (UserLLM)

A stage asks one of these roles about each item, checks the answer by rule, asks once more, and keeps or drops the item:

    stages = Stages(folder, words)
    goals = stages.run(GOALS, items)        # key -> answer, of the items that were kept
    stages.dropped                          # reason -> count

The settings are those of a judge (docs/judge.md), on the command line as ROLE.KEY=VALUE: `drafter.model=gpt-5.4-mini`.
A role inherits from `judge` as a task's own judge does, and shares its limits and `judge.budget_usd`. If you name no
model for a role, it has the judge's. If you name no model at all, drafter and filter are the paper's.

The journal of a stage holds one JSON line for each item, written as soon as the item is decided. So the same command
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from data.builder_cli import Option, argument
from soul.cli.arguments import output_folder
from soul.errors import CONTENT, PERMANENT, SYSTEMIC, JudgeFailure, SoulError
from soul.files.line_file import append_line, read_lines
from soul.judge import Gateway, GatewaySettings, Judge
from soul.judge.roles import VARIABLES, sections_of
from soul.prompts import Prompt
from soul.rows.data_card import ModelCalls
from soul.rows.overlap import HeldOut, group_keys
from soul.rows.review import LeftOut
from soul.rows.task_files import parse_row, read_rows
from soul.validation_errors import first_problem

Role = Literal["drafter", "filter", "goal_writer", "intent_writer"]
PAPER_MODELS: dict[Role, str] = {"drafter": "gpt-5.4-mini", "filter": "gpt-5.4"}  # appendix C, TwinVoice
NO_ANSWER = "the model gave no valid answer"
_STOPS = PERMANENT | SYSTEMIC  # the next call would fail as well
_CHARS_PER_TOKEN = 4  # of English text, for the plan
AnswerT = TypeVar("AnswerT", bound=BaseModel)


def settings_of(words: Sequence[str]) -> GatewaySettings:
    """The settings from words of the form ROLE.KEY=VALUE or judge.KEY=VALUE. The roles are `by_task` entries.

    Raises:
        BadSettings: a section or a key is unknown, or a value invalid.
    """
    roles: tuple[Role, ...] = get_args(Role)
    sections = sections_of(words, more=roles)
    judge = sections.setdefault("judge", {})
    named = "model" in judge or os.environ.get(VARIABLES["judge"]["model"])
    paper = {} if named else {role: {"model": model} for role, model in PAPER_MODELS.items()}
    judge["by_task"] = {role: {**paper.get(role, {}), **sections.pop(role, {})} for role in roles}
    return GatewaySettings.from_sections(sections)


def model_options(name: str) -> list[Option]:
    """The options of a builder that asks models; they become `Stages.from_args`."""
    folder = f"data/stages/{name}"
    return [
        argument("--against", type=Path, nargs="+", default=[], metavar="FILE", help="evaluation files to leave out"),
        argument("--stages", type=output_folder, default=folder, help=f"folder of the journals (default {folder})"),
        argument("--models", nargs="+", default=[], metavar="ROLE.KEY=VALUE", help="settings of the models"),
        argument("--keep", action="append", default=[], metavar="KEY", help="an item to keep although a rule drops it"),
    ]


def is_evaluated(task: str, args: argparse.Namespace) -> Callable[[Mapping[str, Any]], bool]:
    """A test for records of a task: True if one shares a group with a row of the files of --against."""
    held_out = HeldOut(read_rows([str(path) for path in args.against]))
    return lambda record: bool(held_out.shared_keys(group_keys(parse_row(task, {"index": 0, **record}))))


class BadJournal(SoulError):
    """A journal cannot be read, or was written by another model or with another prompt."""


class Incomplete(SoulError):
    """Some items could not be asked; what was answered is kept."""

    exit_code = 1


class Item(NamedTuple):
    """One question of a stage: its key in the journal, and the data that the model sees."""

    key: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Stage(Generic[AnswerT]):
    """A question that is asked about many items.

    Attributes:
        name: of the journal: NAME.jsonl.
        fault: what is wrong with an answer, by rule, as "kind" or "kind: detail"; "" if nothing. The question is then
            asked once more, with `rejected` and `reason` in the data.
        answer_tokens: of a usual answer, for the plan.
        blemishes: what could be better. An answer with blemishes is asked for once more, too, but the one with fewer of
            them is kept.
    """

    name: str
    role: Role
    prompt: Prompt
    answer: type[AnswerT]
    fault: Callable[[Item, AnswerT], str]
    answer_tokens: int
    blemishes: Callable[[Item, AnswerT], Sequence[str]] = lambda item, answer: ()


class Entry(BaseModel):
    """The decision about one item: a line of the journal.

    Attributes:
        data: what the model was shown.
        answer: the model's answer, also of an item that was dropped; None if it gave none.
        reason: why the item was dropped; "" if it was kept.
        calls, usd: spent on this item; `unpriced`: calls whose price is unknown.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    data: Mapping[str, Any]
    answer: Mapping[str, Any] | None
    reason: str = ""
    calls: int
    usd: float
    unpriced: int
    model: str
    prompt: str


class Journal:
    """The entries of one stage, in a file.

    Raises:
        BadJournal: a line is no entry, or comes from another model or prompt.
    """

    def __init__(self, path: Path, model: str, prompt: str) -> None:
        self.path, self.model = path, model
        self.entries: dict[str, Entry] = {}
        for number, line in enumerate(read_lines(path) if path.exists() else (), start=1):
            try:
                entry = Entry.model_validate_json(line.text)
            except ValidationError as error:
                problem = first_problem(error)
                raise BadJournal(
                    f"{path}: line {number}: field {problem.field}: {problem.message}. Delete this line to ask about "
                    "its item again; the other answers are kept."
                ) from error
            if (entry.model, entry.prompt) != (model, prompt):
                raise BadJournal(
                    f"{path} holds answers of {entry.model} to {entry.prompt}, but this run asks {model} with {prompt}."
                    " Use the same model, or move the file away to ask again."
                )
            self.entries[entry.key] = entry

    def decided(self, item: Item) -> Entry | None:
        """The entry about this item; None without one, or if it was about other data under the same key."""
        entry = self.entries.get(item.key)
        return entry if entry is not None and entry.data == json.loads(json.dumps(item.data)) else None

    def add(self, entry: Entry) -> None:
        """Append an entry, in place of the half line that a killed process may have left."""
        line = json.dumps(entry.model_dump(mode="json"), ensure_ascii=False)
        append_line(self.path, line)
        self.entries[entry.key] = Entry.model_validate_json(line)  # as a later run will read it


@dataclass
class Stages:
    """The stages of one builder.

    Attributes:
        folder: of the journals.
        words: settings of the models, ROLE.KEY=VALUE.
        dropped: items that were dropped, by stage and reason.
        uses: the models that were asked, over all runs.
        keep: keys of items that are kept although their answer breaks a rule.
        left_out: the dropped items themselves.
    """

    folder: Path
    words: Sequence[str]
    keep: Sequence[str] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    uses: list[ModelCalls] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Stages:
        """The stages of a builder with `model_options`."""
        return cls(args.stages, args.models, args.keep)

    def plan(self, stage: Stage[Any], items: Sequence[Item]) -> str:
        """Number of calls that will be made, and their highest cost."""
        endpoint, journal = settings_of(self.words).by_task[stage.role], self._journal(stage)
        wanted = [item for item in items if journal.decided(item) is None]
        sent = sum(len(stage.prompt) + len(str(item.data)) for item in wanted) // _CHARS_PER_TOKEN
        answered = stage.answer_tokens * len(wanted)
        price = f"price unknown: set {stage.role}.price_in and {stage.role}.price_out"
        if endpoint.priced:
            price = f"about ${endpoint.cost(sent, 0, answered):,.2f}, at most twice that, plus reasoning"
        return (
            f"{stage.name}: {len(wanted):,} calls to {endpoint.name} ({len(items) - len(wanted):,} are done), "
            f"about {sent:,} tokens in and {answered:,} out; {price}"
        )

    def run(self, stage: Stage[AnswerT], items: Sequence[Item]) -> dict[str, AnswerT]:
        """Ask about the items that are not decided yet. Returns the answers of all kept items, by key.

        Raises:
            ValueError: two items have the same key.
            Incomplete: some calls failed; the same command asks for those again.
            BadJournal, BadSettings: see `Journal` and `settings_of`.
        """
        print(self.plan(stage, items), file=sys.stderr, flush=True)
        journal = self._journal(stage)
        if repeated := [key for key, count in Counter(item.key for item in items).items() if count > 1]:
            raise ValueError(
                f"{stage.name}: two items have the key {repeated[0]!r}, so their answers would be mixed up"
            )
        wanted = [item for item in items if journal.decided(item) is None]
        failed = asyncio.run(self._ask_all(stage, wanted, journal)) if wanted else []
        entries = [entry for item in items if (entry := journal.decided(item)) is not None]
        usd = None if any(e.unpriced for e in entries) else round(sum(e.usd for e in entries), 6)
        calls = sum(e.calls for e in entries)
        self.uses.append(ModelCalls(role=stage.role, model=journal.model, prompt=stage.prompt.id, calls=calls, usd=usd))
        if failed:
            causes = ", ".join(f"{count:,} {cause}" for cause, count in Counter(f.cause for f in failed).items())
            raise Incomplete(
                f"{stage.name}: {len(items) - len(entries):,} of {len(items):,} items "
                f"were not answered ({causes}; for instance: {failed[0].detail}). {journal.path} keeps the others; run "
                "the same command to go on."
            )
        answers = {}
        for entry in entries:
            if entry.reason and (entry.answer is None or entry.key not in self.keep):
                # "it quotes the user: 'we went to the'" is one reason, whatever was quoted.
                self.dropped[f"{stage.name}: {entry.reason.partition(':')[0]}"] += 1
                reason = f"{stage.name}: {entry.reason}"
                self.left_out.append(LeftOut(entry.key, reason, entry.data, entry.answer or {}, bool(entry.answer)))
            else:
                answers[entry.key] = stage.answer.model_validate(entry.answer)
        return answers

    def _journal(self, stage: Stage[Any]) -> Journal:
        model = settings_of(self.words).by_task[stage.role].model
        return Journal(self.folder / f"{stage.name}.jsonl", model, stage.prompt.id)

    async def _ask_all(self, stage: Stage[Any], items: Sequence[Item], journal: Journal) -> list[JudgeFailure]:
        settings = settings_of(self.words)
        spent = sum(use.usd or 0.0 for use in self.uses) + sum(entry.usd for entry in journal.entries.values())
        gateway = Gateway.connect(settings, spent_usd=spent)  # without a cache of answers: the journal has them
        failed: list[JudgeFailure] = []
        width = asyncio.Semaphore(2 * settings.by_task[stage.role].concurrency)
        journal.path.parent.mkdir(parents=True, exist_ok=True)

        async def one(item: Item) -> None:
            async with width:
                if any(failure.cause in _STOPS for failure in failed):
                    return
                try:
                    journal.add(await _decide(stage, item, gateway.by_task[stage.role].scope(), journal.model))
                except JudgeFailure as failure:
                    failed.append(failure)

        try:
            await asyncio.gather(*(one(item) for item in items))
        finally:
            await gateway.close()
        return failed


async def _decide(stage: Stage[Any], item: Item, judge: Judge, model: str) -> Entry:
    """Ask, and ask once more if the answer has a fault or a blemish."""
    data, tried = dict(item.data), []
    for _ in range(2):
        try:
            answer = await judge.ask(stage.answer, stage.prompt, data)
        except JudgeFailure as failure:
            if failure.cause not in CONTENT:
                raise
            break  # the gateway has asked again already
        fault, blemishes = stage.fault(item, answer), stage.blemishes(item, answer)
        tried.append((bool(fault), len(blemishes), fault, answer))
        if not fault and not blemishes:
            break
        reason = "; ".join([*([fault] if fault else []), *blemishes])
        data = {**item.data, "rejected": answer.model_dump(mode="json"), "reason": reason}
    # Of two answers with a fault, the second one is kept in the journal.
    _, _, fault, answer = min(reversed(tried), key=lambda one: one[:2], default=(True, 0, NO_ANSWER, None))
    return Entry(
        key=item.key,
        data=item.data,
        answer=answer.model_dump(mode="json") if answer is not None else None,
        reason=fault,
        calls=judge.usage.calls,
        usd=judge.usage.cost_usd,
        unpriced=judge.usage.unpriced,
        model=model,
        prompt=stage.prompt.id,
    )
