"""Decide which samples are kept, and why each of the others is not. This works on numbers only and reads no files.

Every sample has one fate: kept, or the first of these reasons that applies. It can never be kept (failed, contentless,
cut off, in an evaluation, unusable, without the form that the task asks for); it has the worst reward; it is below the
threshold; below the mean of its row; a duplicate; in surplus of `per_row`; dropped to balance the tasks. Draws depend
only on the seed and the sample.
"""

import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sft.distill.sample import ExpertSample, Fingerprints
from soul.errors import BadSettings
from soul.task_types import Metric

KEPT, WORST, BELOW_THRESHOLD, BELOW_MEAN = "kept", "worst", "below threshold", "below the row's mean"
DUPLICATE, NOT_BEST, BALANCE = "duplicate", "surplus of its row", "balance"
EPSILON = 1e-9  # a mean of equal rewards may differ from them in its last bit


@dataclass(frozen=True)
class Rule:
    """The rule by which samples are kept. Mappings are by task; the key "" holds for every task that is not named.

    Attributes:
        threshold: the reward that a sample must reach, in units of the task's headline. A sample of a task without one
            must reach the mean of its row.
        per_row: the most samples to keep per row, best first; None for all.
        weights: the tasks' relative numbers of conversations, which are as large as these proportions allow; a task
            that is not named weighs 1. If empty, tasks are not balanced.
        seed: for all draws.
    """

    threshold: Mapping[str, float] = field(default_factory=dict)
    per_row: int | None = 1
    weights: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def asks_for(self, task: str) -> bool:
        """Tell whether any conversation of the task is to be kept."""
        return _for_task(self.weights, task) != 0


@dataclass(frozen=True)
class Selection:
    """The outcome for all samples.

    Attributes:
        fates: "kept" or the reason against it, one for each of `samples`.
        kept: the kept samples, sorted, each with its conversations that are not duplicates.
    """

    samples: Sequence[ExpertSample]
    fates: Sequence[str]
    kept: Sequence[tuple[ExpertSample, tuple[Fingerprints, ...]]]


def choose(samples: Sequence[ExpertSample], rule: Rule, headlines: Mapping[str, Metric]) -> Selection:
    """Apply the rule to the samples.

    Args:
        headlines: data_source -> its headline metric, for the direction and the worst value.
    """
    check_rule(rule, {sample.task for sample in samples})
    rows: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        rows[sample.task, sample.row].append(place)
    fates: dict[int, str] = {}
    kept: dict[int, tuple[Fingerprints, ...]] = {}
    known: set[str] = set()  # fingerprints of all kept conversations
    for key in sorted(rows):
        row = {place: samples[place] for place in rows[key]}
        good: list[int] = []
        for place, sample in row.items():
            reason = _rejection(sample, row.values(), rule, headlines[sample.data_source])
            if reason is None:
                good.append(place)
            else:
                fates[place] = reason
        good.sort(key=lambda place: _rank(samples[place], headlines[samples[place].data_source], rule.seed))
        _keep_best(good, samples, rule.per_row, known, kept, fates)
    for place in _balanced(samples, kept, rule):
        del kept[place]
        fates[place] = BALANCE
    fates.update(dict.fromkeys(kept, KEPT))
    chosen = sorted(kept, key=lambda place: samples[place].key)
    return Selection(samples, [fates[place] for place in range(len(samples))], [(samples[p], kept[p]) for p in chosen])


def check_rule(rule: Rule, tasks: set[str]) -> None:
    """Raise BadSettings for a rule that does not fit the samples, which are of these tasks."""
    for option in ("threshold", "weights"):
        for name in getattr(rule, option):
            if name and name not in tasks:
                known = ", ".join(sorted(tasks)) or "none"
                raise BadSettings(f"{option}: there is no sample of the task {name!r}. There are samples of: {known}.")


def _for_task(values: Mapping[str, float], task: str) -> float | None:
    return values.get(task, values.get(""))


def _rejection(sample: ExpertSample, row: Iterable[ExpertSample], rule: Rule, headline: Metric) -> str | None:
    """Return why a sample cannot be kept, regardless of duplicates and limits; None if it can."""
    if sample.problem is not None or sample.reward is None:
        return sample.problem or "failed: unknown"
    sign = 1 if headline.higher_is_better else -1
    if sample.reward == headline.worst:
        return WORST
    threshold = _for_task(rule.threshold, sample.task)
    if threshold is not None:
        return None if sign * (sample.reward - threshold) >= -EPSILON else BELOW_THRESHOLD
    mean = statistics.fmean(s.reward for s in row if s.reward is not None)
    return None if sign * (sample.reward - mean) >= -EPSILON else BELOW_MEAN


def _rank(sample: ExpertSample, headline: Metric, seed: int) -> tuple[float, float]:
    """Sort key: the best reward first, ties in random order."""
    assert sample.reward is not None
    sign = 1 if headline.higher_is_better else -1
    return -sign * sample.reward, random.Random(f"{seed}:{':'.join(sample.key)}").random()


def _keep_best(
    good: Sequence[int],
    samples: Sequence[ExpertSample],
    per_row: int | None,
    known: set[str],
    kept: dict[int, tuple[Fingerprints, ...]],
    fates: dict[int, str],
) -> None:
    """Keep the best samples of one row. A conversation is a duplicate if it is kept already, or if the same seat wrote
    the same turns on this row, regardless of the other speakers."""
    written: set[tuple[str, str]] = set()
    count = 0
    for place in good:
        fresh = []
        for seat in samples[place].seats:
            if seat.whole not in known and (seat.seat, seat.trained) not in written:
                fresh.append(seat)
        if not fresh:
            fates[place] = DUPLICATE
        elif per_row is not None and count >= per_row:
            fates[place] = NOT_BEST
        else:
            count += 1
            kept[place] = tuple(fresh)
            known.update(seat.whole for seat in fresh)
            written.update((seat.seat, seat.trained) for seat in fresh)


def _balanced(samples: Sequence[ExpertSample], kept: Mapping[int, tuple[Fingerprints, ...]], rule: Rule) -> list[int]:
    """The kept samples in excess of their task's limit. Episodes stay whole: one that no longer fits is dropped."""
    if not rule.weights:
        return []
    by_task: defaultdict[str, list[int]] = defaultdict(list)
    for place in kept:
        by_task[samples[place].task].append(place)
    sizes = {task: sum(len(kept[place]) for place in places) for task, places in by_task.items()}
    shares = {task: rule.weights.get(task, rule.weights.get("", 1.0)) for task in sizes}
    unit = min((sizes[task] / share for task, share in shares.items() if share), default=0.0)
    left_out = []
    for task, places in by_task.items():
        room = int(unit * shares[task] + EPSILON)
        drawn = sorted(places, key=lambda place: samples[place].key)
        random.Random(f"{rule.seed}:{task}").shuffle(drawn)
        for place in drawn:
            size = len(kept[place])
            if size > room:
                left_out.append(place)
            else:
                room -= size
    return left_out
