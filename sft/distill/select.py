"""Which samples are kept, and why each of the others is not. Numbers in, fates out: no text, no file, no clock.

Every sample has one fate: kept, or the first of these that holds. It can never be kept (failed, contentless, cut off,
in an evaluation, unusable); it is worth the least there is; below the threshold; below the margin; a duplicate; one of
more than `per_row` of its row; left out by the balance of tasks. Draws depend on seed and sample alone.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sft.distill.conversation import Fingerprints
from sft.distill.sample import ExpertSample
from soul.errors import BadSettings
from soul.task import Metric

Keep = Literal["best", "threshold"]
KEPT, WORST, BELOW_THRESHOLD, BELOW_MARGIN = "kept", "worst", "below threshold", "below margin"
DUPLICATE, NOT_BEST, BALANCE = "duplicate", "more of its row", "balance"
EPSILON = 1e-9  # a mean of equal rewards may differ from them in its last bit


@dataclass(frozen=True)
class Rule:
    """What is kept. Mappings are by task; "" stands for every task that is not named.

    Attributes:
        keep: "best" keeps the best of a row's samples, "threshold" those that are good enough.
        threshold: the reward that a sample must reach, in units of the task's headline; with "best" too.
        margin: how much better than the mean of its row a sample must be; a refined answer, than its draft. None: with
            "best" not worse than the mean, with "threshold" anything; a refined answer better than its draft.
        per_row: samples kept of a row, the best; None: all.
        rows_per_task: conversations of a task; None: all.
        weights: the tasks' shares in the conversations, as large as all of them can be at these shares; a task that is
            not named weighs 1. Empty: no balance.
    """

    keep: Keep = "best"
    threshold: Mapping[str, float] = field(default_factory=dict)
    margin: Mapping[str, float] = field(default_factory=dict)
    per_row: int | None = 1
    rows_per_task: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Selection:
    """What became of the samples.

    Attributes:
        fates: of each sample, in the order given: "kept", or the reason why not.
        kept: the kept samples with those of their conversations that are no duplicates, sorted.
    """

    samples: Sequence[ExpertSample]
    fates: Sequence[str]
    kept: Sequence[tuple[ExpertSample, tuple[Fingerprints, ...]]]


def choose(samples: Sequence[ExpertSample], rule: Rule, headlines: Mapping[str, Metric]) -> Selection:
    """Choose among the samples.

    Args:
        headlines: data_source -> its headline metric, whose direction says what is better.

    Raises:
        BadSettings: the rule keeps by threshold and has none for a task, or names a task that has no sample.
    """
    _check(rule, {sample.task for sample in samples})
    rows: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        rows[sample.task, sample.row].append(place)
    fates: dict[int, str] = {}
    kept: dict[int, tuple[Fingerprints, ...]] = {}
    known: set[str] = set()  # conversations that are kept, of all rows
    for key in sorted(rows):
        of_row = {place: samples[place] for place in rows[key]}
        good: list[int] = []
        for place, sample in of_row.items():
            reason = _refused(sample, of_row.values(), rule, headlines[sample.data_source])
            if reason is None:
                good.append(place)
            else:
                fates[place] = reason
        good.sort(key=lambda place: _rank(samples[place], headlines[samples[place].data_source], rule.seed))
        _take(good, samples, rule.per_row, known, kept, fates)
    for place in _balanced(samples, kept, rule):
        del kept[place]
        fates[place] = BALANCE
    fates.update(dict.fromkeys(kept, KEPT))
    chosen = sorted(kept, key=lambda place: samples[place].key)
    return Selection(samples, [fates[place] for place in range(len(samples))], [(samples[p], kept[p]) for p in chosen])


def _check(rule: Rule, tasks: set[str]) -> None:
    for option in ("threshold", "margin", "rows_per_task", "weights"):
        for name in getattr(rule, option):
            if name and name not in tasks:
                known = ", ".join(sorted(tasks)) or "none"
                raise BadSettings(f"{option}: there is no sample of the task {name!r}. There are samples of: {known}.")
    if rule.rows_per_task and rule.weights:
        raise BadSettings("rows_per_task and weights both say how many rows of a task are kept: use one of them.")
    if rule.keep == "threshold":
        without = sorted(task for task in tasks if _of(rule.threshold, task) is None)
        if without:
            raise BadSettings(f"keep=threshold needs a threshold for {without[0]}: --threshold {without[0]}=REWARD.")


def _of(values: Mapping[str, float], task: str) -> float | None:
    return values.get(task, values.get(""))


def _refused(sample: ExpertSample, of_row: Iterable[ExpertSample], rule: Rule, headline: Metric) -> str | None:
    """Why a sample cannot be kept, whatever else there is; None: it can."""
    if sample.problem is not None or sample.reward is None:
        return sample.problem or "failed: unknown"
    sign = 1 if headline.higher_is_better else -1
    if sample.reward == headline.worst:
        return WORST
    threshold = _of(rule.threshold, sample.task)
    if threshold is not None and sign * (sample.reward - threshold) < -EPSILON:
        return BELOW_THRESHOLD
    margin = _of(rule.margin, sample.task)
    if sample.bar is not None:
        gain = sign * (sample.reward - sample.bar)
        return None if gain > EPSILON and gain >= (margin or 0.0) - EPSILON else BELOW_MARGIN
    if margin is None and rule.keep == "threshold":
        return None
    mean = statistics.fmean(s.reward for s in of_row if s.reward is not None and s.bar is None)
    return None if sign * (sample.reward - mean) >= (margin or 0.0) - EPSILON else BELOW_MARGIN


def _rank(sample: ExpertSample, headline: Metric, seed: int) -> tuple[float, float]:
    """The best first; among equals by lot."""
    assert sample.reward is not None
    sign = 1 if headline.higher_is_better else -1
    return -sign * sample.reward, random.Random(f"{seed}:{':'.join(sample.key)}").random()


def _take(
    good: Sequence[int],
    samples: Sequence[ExpertSample],
    per_row: int | None,
    known: set[str],
    kept: dict[int, tuple[Fingerprints, ...]],
    fates: dict[int, str],
) -> None:
    """Take the best of one row. A conversation counts as known if it is kept already, or if the seat said the same to
    the same row, whoever else said what in between."""
    said: set[tuple[str, str]] = set()
    taken = 0
    for place in good:
        fresh = []
        for seat in samples[place].seats:
            if seat.whole not in known and (seat.seat, seat.said) not in said:
                fresh.append(seat)
        if not fresh:
            fates[place] = DUPLICATE
        elif per_row is not None and taken >= per_row:
            fates[place] = NOT_BEST
        else:
            taken += 1
            kept[place] = tuple(fresh)
            known.update(seat.whole for seat in fresh)
            said.update((seat.seat, seat.said) for seat in fresh)


def _balanced(samples: Sequence[ExpertSample], kept: Mapping[int, tuple[Fingerprints, ...]], rule: Rule) -> list[int]:
    """The kept samples that are too many of their task. An episode stays whole: what no longer fits is passed over."""
    by_task: defaultdict[str, list[int]] = defaultdict(list)
    for place in kept:
        by_task[samples[place].task].append(place)
    sizes = {task: sum(len(kept[place]) for place in places) for task, places in by_task.items()}
    shares = {task: rule.weights.get(task, rule.weights.get("", 1.0)) for task in sizes}
    unit = min((sizes[task] / share for task, share in shares.items() if share), default=0.0)
    left_out = []
    for task, places in by_task.items():
        room = _of(rule.rows_per_task, task)
        if rule.weights:
            room = int(unit * shares[task] + EPSILON)
        if room is None:
            continue
        drawn = sorted(places, key=lambda place: samples[place].key)
        random.Random(f"{rule.seed}:{task}").shuffle(drawn)
        for place in drawn:
            size = len(kept[place])
            if size > room:
                left_out.append(place)
            else:
                room -= size
    return left_out
