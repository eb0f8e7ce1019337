"""One stage: ask a model about each item, check the answer by rule, ask once more, and keep or drop the item.

    stages = Stages(folder, words)
    goals = stages.run(GOALS, items)        # key -> answer, of the items that were kept
    stages.dropped                          # reason -> count

The calls go through the judge gateway, with its limits, retries and budget. Everything that was decided is in the
stage's journal.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from data.builder_cli import Decision, ModelUse, Option, argument
from data.model_stages.journal import Entry, Journal
from data.model_stages.roles import Role, endpoint_of, settings_of
from soul.cli.arguments import output_folder
from soul.errors import CONTENT, PERMANENT, SYSTEMIC, JudgeFailure, SoulError
from soul.judge import Gateway, Judge
from soul.prompts import Prompt

NO_ANSWER = "the model gave no valid answer"
_STOPS = PERMANENT | SYSTEMIC  # the next call would fail as well
_CHARS_PER_TOKEN = 4  # of English text, for the plan
AnswerT = TypeVar("AnswerT", bound=BaseModel)


class Incomplete(SoulError):
    """Some items could not be asked; what was answered is kept."""

    exit_code = 1


class Item(NamedTuple):
    """What a stage asks about: its key in the journal, and the data that the model sees."""

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


@dataclass
class Stages:
    """The stages of one builder.

    Attributes:
        folder: of the journals.
        words: settings of the models, ROLE.KEY=VALUE.
        dropped: items that were dropped, by stage and reason.
        uses: the models that were asked, over all runs.
        decisions: what was made of each item, for the report; of a kept one, once the builder says so (`keep`).
    """

    folder: Path
    words: Sequence[str]
    dropped: Counter[str] = field(default_factory=Counter)
    uses: list[ModelUse] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def plan(self, stage: Stage[Any], items: Sequence[Item]) -> str:
        """How many calls will be made, and what they cost at most."""
        endpoint = endpoint_of(stage.role, settings_of(self.words))
        journal = self._journal(stage)
        wanted = [item for item in items if journal.decided(item.key, item.data) is None]
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
        wanted = [item for item in items if journal.decided(item.key, item.data) is None]
        failed = asyncio.run(self._ask_all(stage, wanted, journal)) if wanted else []
        decided = (journal.decided(item.key, item.data) for item in items)
        entries = [entry for entry in decided if entry is not None]
        unpriced = any(entry.unpriced for entry in entries)
        self.uses.append(
            ModelUse(
                role=stage.role,
                model=journal.model,
                prompt=stage.prompt.id,
                calls=sum(entry.calls for entry in entries),
                usd=None if unpriced else round(sum(entry.usd for entry in entries), 6),
            )
        )
        if failed:
            causes = ", ".join(f"{count:,} {cause}" for cause, count in Counter(f.cause for f in failed).items())
            raise Incomplete(
                f"{stage.name}: {len(items) - len(entries):,} of {len(items):,} items "
                f"were not answered ({causes}; for instance: {failed[0].detail}). {journal.path} keeps the others; run "
                "the same command to go on."
            )
        # "it quotes the user: 'we went to the'" is one reason, whatever was quoted.
        self.dropped.update(f"{stage.name}: {entry.reason.partition(':')[0]}" for entry in entries if entry.reason)
        self.decisions += [
            Decision(entry.key, entry.data, entry.answer or {}, f"{stage.name}: {entry.reason}")
            for entry in entries
            if entry.reason
        ]
        return {entry.key: stage.answer.model_validate(entry.answer) for entry in entries if not entry.reason}

    def keep(self, key: str, source: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Note an item that is in the file."""
        self.decisions.append(Decision(key, source, result, ""))

    def drop(self, key: str, source: Mapping[str, Any], result: Mapping[str, Any], reason: str) -> None:
        """Note an item that the builder drops after the stages."""
        self.decisions.append(Decision(key, source, result, reason))
        self.dropped[reason] += 1

    def _journal(self, stage: Stage[Any]) -> Journal:
        model = endpoint_of(stage.role, settings_of(self.words)).model
        return Journal(self.folder / f"{stage.name}.jsonl", model, stage.prompt.id)

    async def _ask_all(self, stage: Stage[Any], items: Sequence[Item], journal: Journal) -> list[JudgeFailure]:
        settings = settings_of(self.words)
        spent = sum(use.usd or 0.0 for use in self.uses) + sum(entry.usd for entry in journal.entries.values())
        gateway = Gateway.connect(settings, spent_usd=spent)  # without a cache of answers: the journal has them
        failed: list[JudgeFailure] = []
        width = asyncio.Semaphore(2 * endpoint_of(stage.role, settings).concurrency)

        async def one(item: Item) -> None:
            async with width:
                if any(failure.cause in _STOPS for failure in failed):
                    return
                try:
                    journal.add(await _decide(stage, item, gateway.by_task[stage.role].scope(), journal.model))
                except JudgeFailure as failure:
                    failed.append(failure)

        try:
            with journal:
                await asyncio.gather(*(one(item) for item in items))
        finally:
            await gateway.close()
        return failed


def model_options(name: str) -> list[Option]:
    """The options of a builder that asks models; they become `Stages(args.stages, args.models)`."""
    folder = f"data/stages/{name}"
    return [
        argument("--stages", type=output_folder, default=folder, help=f"folder of the journals (default {folder})"),
        argument("--models", nargs="+", default=[], metavar="ROLE.KEY=VALUE", help="settings of the models"),
    ]


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
    usage = judge.usage
    return Entry(
        key=item.key,
        data=item.data,
        answer=answer.model_dump(mode="json") if answer is not None else None,
        reason=fault,
        calls=usage.calls,
        usd=usage.cost_usd,
        unpriced=usage.unpriced,
        model=model,
        prompt=stage.prompt.id,
    )
