"""Let people label texts of a run, without knowing which side or model wrote them: `soul judge draw`.

    soul judge draw outputs/run --pairs draft-refined --count 100 --out labels/pairs    # sessions of a training run
    soul judge draw outputs/eval-a outputs/eval-b --pairs models --out labels/models    # the same rows of two models
    soul judge draw outputs/eval-a --ratings --dimensions goal --out labels/ratings
    soul judge draw labels/pairs --export labels.jsonl                                  # for `soul judge agree`

`soul view --annotate FOLDER` shows the texts. The folder holds annotation.json (kind, seed, sources), items.jsonl (both
texts, and which side is which) and labels.jsonl, which only grows: one line for each label, so several people can
label, stop and go on. The last label of a person counts.

Of a pair, people say which text was more likely written by a person; that is the question of MirrorBench's pairwise
judgment. In the export, "simulated" is the refined answer or the second model, and "real" the side it is compared with.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from soul import tasks
from soul.answers.thinking import without_thinking
from soul.cli.arguments import existing_folder, non_negative_int, output_file, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.compare.evaluations import pair_up
from soul.errors import BadSettings
from soul.evaluate.run.journal import read_samples
from soul.evaluate.run.run_folder import EvaluationRun
from soul.files.json_object import read_object
from soul.files.line_file import append_line, read_lines, write_lines
from soul.files.trace_files import FOLDER as TRACES
from soul.files.trace_files import finished_files
from soul.files.whole_file import write_whole
from soul.judge.audit import human_agreement
from soul.judge.audit.human_labels import parse
from soul.judge.mirrorbench_judgments import WIN, Taken
from soul.message import Message
from soul.record import AttemptRecord, opening, read_records

Kind = Literal["draft-refined", "models", "ratings"]
SETTINGS, ITEMS, LABELS = "annotation.json", "items.jsonl", "labels.jsonl"
SHOWN = ("A", "B")  # the names of a pair's texts on the page
_TAKEN: tuple[Taken, Taken] = ("real", "simulated")  # the names of its sides in labels
_PERSON = re.compile(r"[\w .-]{1,40}")


@dataclass(frozen=True)
class Item:
    """A pair of texts, or one text to rate. The page is sent none of `sides`, `judge` and `source`.

    Attributes:
        context: the messages before the first turn, without feedback.
        texts: the turns of each side, with the policy as the user.
        dimensions: lowest and highest rating by name; empty for a pair.
        judge: the reward of each side, or the judge's score by dimension.
    """

    task: str
    context: list[Message]
    texts: list[list[Message]]
    sides: list[str]
    judge: Any
    source: str
    dimensions: dict[str, tuple[float, float]]
    id: int = 0


class Annotation:
    """The items and labels of a folder.

    Raises:
        BadSettings: in all methods: the folder, a name of a person, an item or a label is refused.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / SETTINGS).is_file():
            raise BadSettings(f"{folder} has no {SETTINGS}: make an annotation with `soul judge draw --out FOLDER`.")
        settings = read_object(folder / SETTINGS, BadSettings, "Draw the items again.")
        self.folder, self.kind, self.seed = folder, settings["kind"], settings["seed"]
        self.items = {item.id: item for item in (Item(**json.loads(line.text)) for line in read_lines(folder / ITEMS))}

    @classmethod
    def create(
        cls,
        folder: Path,
        sources: Sequence[Path],
        kind: Kind,
        count: int,
        seed: int = 0,
        dimensions: Sequence[str] = (),
    ) -> Annotation:
        """Draw at most `count` items from runs, each with the same chance.

        Args:
            sources: folders of training runs and evaluations; for "models" two evaluations.
            dimensions: metrics to rate; none: those for which the task has ranges, or its headline.
        """
        if (folder / SETTINGS).exists():
            raise BadSettings(f"{folder} holds an annotation already. Pass the path of another folder with --out.")
        items: list[Item] = []
        rng = random.Random(seed)
        for seen, item in enumerate(_candidates(sources, kind, dimensions)):
            if seen < count:
                items.append(item)
            elif (place := rng.randrange(seen + 1)) < count:
                items[place] = item
        if not items:
            raise BadSettings(f"{', '.join(map(str, sources))}: nothing to label ({kind}). Name other runs.")
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(folder / ITEMS, (json.dumps(asdict(replace(one, id=n))) for n, one in enumerate(items, start=1)))
        about = {"kind": kind, "seed": seed, "sources": list(map(str, sources))}
        write_whole(folder / SETTINGS, json.dumps(about, indent=1) + "\n")
        return cls(folder)

    def next(self, person: str) -> dict[str, Any] | None:
        """The next item for a person to label, in an order of their own; None once all are labelled."""
        labels, rng = self.labels(), random.Random(f"{self.seed}:{_checked(person)}")
        order = rng.sample(sorted(self.items), len(self.items))
        return next((self.shown(person, item) for item in order if (item, person) not in labels), None)

    def shown(self, person: str, item: int) -> dict[str, Any]:
        """An item as a person sees it, with their own label; nothing in it tells the sides apart."""
        found, swapped = self._item(item), self._swapped(_checked(person), item)
        value = self.labels().get((item, person))
        if value in _TAKEN:
            value = SHOWN[_TAKEN.index(value) ^ swapped]
        shown = {"item": item, "task": found.task, "context": found.context, "dimensions": found.dimensions}
        return shown | {"texts": found.texts[::-1] if swapped else found.texts, "label": value}

    def label(self, person: str, item: int, value: Any) -> None:
        """Add a person's label: "A", "B" or "tie", as the texts were shown, or a rating on each dimension."""
        ranges = self._item(item).dimensions
        if not ranges and value in SHOWN:
            value = _TAKEN[SHOWN.index(value) ^ self._swapped(_checked(person), item)]
        elif not ranges and value != "tie":
            raise BadSettings(f"item {item}: the label is {value!r}; give A, B or tie.")
        ratings: dict[str, Any] = {name: value.get(name) if isinstance(value, Mapping) else None for name in ranges}
        for name, (low, high) in ranges.items():
            if type(ratings[name]) not in (int, float) or not low <= ratings[name] <= high:
                raise BadSettings(f"item {item}, {name}: {ratings[name]!r}; give a number from {low:g} to {high:g}.")
        line = {"item": item, "person": _checked(person), "choice": ratings or value}
        append_line(self.folder / LABELS, json.dumps(line | {"time": datetime.now(UTC).isoformat(timespec="seconds")}))

    def labels(self) -> dict[tuple[int, str], Any]:
        """The last label of each item by each person; that of a pair names the side."""
        file = self.folder / LABELS
        lines = map(json.loads, (line.text for line in read_lines(file))) if file.exists() else ()
        return {(line["item"], line["person"]): line["choice"] for line in lines}

    def progress(self) -> dict[str, Any]:
        """The number of items, and of those that each person has labelled."""
        done = Counter(person for _, person in self.labels())
        return {"kind": self.kind, "items": len(self.items), "people": done}

    def agreement(self) -> dict[str, Any]:
        """The agreement of people with each other and with the rewards, as `soul judge agree --json` writes it.

        On the metric "pairwise" the judge takes the side with the higher reward.
        """
        labels = [parse(record, str(self.folder)) for record in self._records()]
        return human_agreement.measure([(label, [label.recorded]) for label in labels], seed=self.seed).to_json()

    def export(self, file: Path) -> int:
        """Write the labels as `soul judge agree` reads them, and return the number of records."""
        records = [f"{json.dumps(record)}\n" for record in self._records()]
        if not records:
            raise BadSettings(f"{self.folder}: nobody has labelled an item yet (soul view --annotate).")
        write_whole(file, records)
        return len(records)

    def _records(self) -> Iterator[dict[str, Any]]:
        """The labels, with one or None for each person, and the verdict of the run, as `human_labels` reads them."""
        labels = self.labels()
        people = sorted({person for _, person in labels})
        for item in self.items.values():
            given = [labels.get((item.id, person)) for person in people]
            about: dict[str, Any] = {"conversation_id": str(item.id), "people": people}
            if any(given) and not item.dimensions:
                before = [{**turn, "role": "assistant"} for turn in item.context if turn["role"] != "system"]
                about |= dict(zip(_TAKEN, ([*before, *text] for text in item.texts), strict=True))
                baseline, other = item.judge
                taken: Taken = "tie" if math.isclose(baseline, other) else _TAKEN[other > baseline]
                yield about | {"sides": item.sides, "human_label": given, "judge_score": WIN[taken]}
            for name in item.dimensions if any(given) else ():
                scores = [float(one[name]) if isinstance(one, Mapping) else None for one in given]
                yield about | {"metric": name, "human_score": scores, "judge_score": item.judge[name]}

    def _item(self, number: int) -> Item:
        if number not in self.items:
            raise BadSettings(f"{self.folder} has no item {number!r}; items have the numbers 1 to {len(self.items)}.")
        return self.items[number]

    def _swapped(self, person: str, item: int) -> bool:
        pair = len(self.items[item].texts) == 2
        return pair and random.Random(f"{self.seed}:{item}:{person}").random() < 0.5


def _checked(person: str) -> str:
    if not _PERSON.fullmatch(person) or person != person.strip():
        raise BadSettings(f"{person!r}: a name has 1 to 40 letters, digits, spaces, dots, hyphens and underscores.")
    return person


def _candidates(sources: Sequence[Path], kind: Kind, dimensions: Sequence[str]) -> Iterator[Item]:
    if kind == "models":
        if len(sources) != 2:
            raise BadSettings(f"--pairs models needs two evaluations; {len(sources)} folders were named.")
        base, other = runs = [EvaluationRun.load(folder) for folder in sources]
        sides = [str(run.folder) for run in runs]
        for name in (name for name in base.sets if name in other.sets):
            for pair in pair_up(base.by_set[name], other.by_set[name]).pairs:
                first, second = pair.base[0], pair.other[0]
                yield from _pair(first.task, first.draft, second.draft, sides, f"{name}, row {pair.number}")
    for source in sources if kind != "models" else ():
        traces = finished_files(source / TRACES, "step")
        traced = (line.record for file in traces for line in read_records(file.path))
        for record in chain(read_samples(source).values(), traced):
            where = f"{source}: {record.set or record.session}, row {record.number}, sample {record.sample}"
            if kind == "ratings":
                for side, attempt in zip(("draft", "refined"), record.attempts, strict=False):
                    yield from _rated(record.task, attempt, side, where, dimensions)
            elif record.refined and record.draft.valid and record.refined.valid:
                yield from _pair(record.task, record.draft, record.refined, ["draft", "refined"], where)


def _pair(task: str, one: AttemptRecord, other: AttemptRecord, sides: list[str], where: str) -> Iterator[Item]:
    context, first, seat = _said(one)
    _, second, _ = _said(other, seat)
    if first and second and first != second:  # equal texts cannot be told apart
        yield Item(task, context, [first, second], sides, [one.reward, other.reward], where, {})


def _rated(task: str, attempt: AttemptRecord, side: str, where: str, dimensions: Sequence[str]) -> Iterator[Item]:
    known, headline = tasks.load(task).ranges, tasks.load(task).headline
    scores = {headline.name: attempt.reward, **(attempt.metrics or {})} if attempt.reward is not None else {}
    ranges = {name: known.get(name, (headline.low, headline.high)) for name in dimensions or known or [headline.name]}
    if not ranges.keys() <= scores.keys():
        return
    for name, (low, high) in ranges.items():
        if not low <= scores[name] <= high:
            raise BadSettings(f"{where}: {name} is {scores[name]:g}, outside {low:g} to {high:g}. Leave it out.")
    context, text, _ = _said(attempt)
    yield Item(task, context, [text], [side], {name: scores[name] for name in ranges}, where, ranges)


def _said(attempt: AttemptRecord, seat: str | None = None) -> tuple[list[Message], list[Message], str]:
    """Split a conversation: what an agent saw before its first turn, and all later turns with the policy as the user.

    Args:
        seat: the agent; the one with the longest conversation if there is none of this name.
    """
    seats = attempt.in_base_context() or {"": []}
    seat = seat if seat in seats else max(seats, key=lambda name: len(seats[name]))
    context, turns = opening(seats[seat]), []
    for turn in seats[seat][len(context) :]:
        if turn["role"] == "assistant":
            turns.append(Message(role="user", content=without_thinking(turn["content"]).strip()))
        else:
            turns.append(Message(role="assistant", content=turn["content"]))
    return context, turns, seat


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the items of an annotation, or export its labels."""
    parser = Parser(prog="soul judge draw", description=__doc__)
    parser.add_argument("sources", type=existing_folder, nargs="+", metavar="FOLDER", help="runs; or the annotation")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pairs", choices=("draft-refined", "models"), help="two texts: which is more like a person?")
    what.add_argument("--ratings", action="store_true", help="one text on the dimensions of its task")
    what.add_argument("--export", type=output_file, metavar="FILE", help="write the labels for `soul judge agree`")
    parser.add_argument("--dimensions", nargs="+", default=(), help="metrics to rate")
    parser.add_argument("--count", type=positive_int, default=100, help="number of items (default 100)")
    parser.add_argument("--seed", type=non_negative_int, default=0, help="seed of the draw and of every order")
    parser.add_argument("--out", type=output_folder, help="the folder of the annotation")
    given = parser.parse_args(arguments)
    if given.dimensions and not given.ratings:
        parser.error("--dimensions belongs to --ratings")
    if given.export:
        print(f"{given.export}: {Annotation(given.sources[0]).export(given.export):,} records")
        return
    if given.out is None:
        parser.error("give --out FOLDER")
    kind: Kind = given.pairs or "ratings"
    made = Annotation.create(given.out, given.sources, kind, given.count, given.seed, given.dimensions)
    print(f"{given.out}: {len(made.items):,} items ({kind}). Label them: soul view --annotate {given.out}")
