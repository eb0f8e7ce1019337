"""Evaluations as a side of a comparison, and the rows that two of them share.

Several folders are seeds: further samples of the same rows, so a row's score is its mean over them, and intervals are
over rows. How far seeds differ is shown beside, as the scores of each.

Two rows are a pair if set, place in the file and record agree. Their judge prompts may differ; `protocol.py` reports
that. A row's score is the mean reward of its valid samples, so runs with different numbers of samples per row can be
paired. Rows that cannot be paired are counted by reason and never filled in.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from soul import tasks
from soul.compare.comparison import Comparison, Row, SetComparison
from soul.compare.protocol import Deviation, deviations
from soul.errors import SoulError
from soul.evaluate.numbers.results import Results, summarise_run
from soul.evaluate.numbers.set_result import score_of
from soul.evaluate.run.journal import FILE
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.run_table import ordered
from soul.record import SessionRecord
from soul.rows.data_card import sha256
from soul.task_types import Metric

Samples = Sequence[SessionRecord]


class MixedSeeds(SoulError):
    """Two evaluations of one side were scored in different ways, so they are not seeds of one thing."""


class NothingToCompare(SoulError):
    """The sides share no set, or no row that has a score on both."""


@dataclass(frozen=True)
class EvaluationSide:
    """The evaluations of one label."""

    label: str
    seeds: Sequence[EvaluationRun]
    kind: ClassVar[str] = "evaluation"

    def __post_init__(self) -> None:
        first, *others = self.seeds
        for run in others:
            for name in first.sets:
                left, right = first.by_set[name], run.by_set.get(name, ())
                found = deviations(first, run, left, right) if left and right else []
                if reason := next((one.text for one in found if one.matters), ""):
                    raise MixedSeeds(
                        f"{self.label}: {first.folder} and {run.folder} are not seeds of one thing in {name} "
                        f"({reason}). Compare them with each other, or score one again (soul evaluate --rescore)."
                    )

    @property
    def folders(self) -> list[Path]:
        return [run.folder for run in self.seeds]

    @cached_property
    def run(self) -> EvaluationRun:
        """All seeds as one evaluation with more samples a row."""
        first, *others = self.seeds
        if not others:
            return first
        sets = dict.fromkeys(name for run in self.seeds for name in run.sets)
        wanted = {name: sum(run.wanted.get(name, 0) for run in self.seeds) for name in sets}
        return replace(first, samples=list(_renumbered(self.seeds)), wanted=wanted, n=sum(run.n for run in self.seeds))

    @cached_property
    def results(self) -> Results:
        """The numbers over all seeds."""
        return summarise_run(self.run)

    @cached_property
    def seed_results(self) -> list[Results]:
        """The numbers of each seed."""
        return [summarise_run(run) for run in self.seeds]

    @cached_property
    def sources(self) -> list[tuple[str, Path, str]]:
        """Label, folder and hash of the samples of each seed."""
        return [(self.label, run.folder, sha256(run.folder / FILE)) for run in self.seeds]

    @property
    def hashes(self) -> str:
        """The hashes of all seeds."""
        return " ".join(sha256 for _, _, sha256 in self.sources)

    def sessions(self, name: str, row: str) -> list[SessionRecord]:
        return [sample for sample in self.run.by_set[name] if str(sample.number) == row]


def _renumbered(seeds: Sequence[EvaluationRun]) -> Iterator[SessionRecord]:
    """The samples of all seeds, each under a number of its own."""
    first = 0
    for run in seeds:
        yield from (sample.model_copy(update={"sample": first + sample.sample}) for sample in run.samples)
        first += 1 + max((sample.sample for sample in run.samples), default=0)


def compare_evaluations(base: EvaluationSide, other: EvaluationSide) -> Comparison:
    """Compare one side with the baseline.

    Raises:
        NothingToCompare: they share no set, or no row with a score on both sides.
    """
    common = [name for name in base.run.sets if name in other.run.sets]
    names = f"{base.run.folder} and {other.run.folder}"
    if not common:
        listed = "; and ".join(", ".join(side.run.sets) for side in (base, other))
        raise NothingToCompare(f"{names} have no set in common: {listed}. Evaluate both on the same sets (TASKS=...).")
    sets = {name: _compare_set(base, other, name) for name in ordered(common)}
    if not any(one.rows for one in sets.values()):
        counts = [f"{n:,} {why} ({one.name})" for one in sets.values() for why, n in one.not_paired.items()]
        raise NothingToCompare(
            f"{names} share no row that has a score in both. Rows in {', '.join(common)}: "
            f"{', '.join(counts) or 'none is finished'}. Evaluate both with the same files, LIMIT and --seed."
        )
    notes = [
        f"Only {side.label} has {', '.join(only)}."
        for side in (base, other)
        if (only := [name for name in side.run.sets if name not in common])
    ]
    if base.run.n != other.run.n:
        notes.append(f"Samples per row: {base.run.n} and {other.run.n}; a row's score is their mean.")
    return Comparison(base, other, sets, notes)


def _compare_set(base: EvaluationSide, other: EvaluationSide, name: str) -> SetComparison:
    left, right = base.run.by_set[name], other.run.by_set[name]
    paired = pair_up(left, right)
    if not left or not right:  # requested, but no sample is finished yet
        return SetComparison(name, Metric("unknown"), [], not_paired=paired.not_paired)
    task, found = tasks.load(left[0].task), deviations(base.run, other.run, left, right)
    joint = None
    if task.set_headline is not None:
        both = [score_of(task, [getattr(pair, side) for pair in paired.pairs]) for side in ("base", "other")]
        shared = both[0].parts.keys() & both[1].parts.keys()
        if alone := both[0].parts.keys() ^ both[1].parts.keys():
            found.append(Deviation(f"{', '.join(sorted(alone))}: defined on one side only, so left out of both", False))
        joint = both[0].only(shared), both[1].only(shared)
    notes = [one.text for one in found if not one.matters]
    notes += [f"{paired.shortened:,} paired rows were shortened to fit a model's context"] if paired.shortened else []
    notes += [f"{paired.failed:,} samples of paired rows have no verdict"] if paired.failed else []
    numbers = [pair.number for pair in paired.pairs]
    return SetComparison(
        name,
        task.set_headline or task.headline,
        [Row(str(pair.number), _mean_reward(pair.base), _mean_reward(pair.other)) for pair in paired.pairs],
        seeds=(_scores_of_seeds(base, name, numbers), _scores_of_seeds(other, name, numbers)),
        reasons=[one.text for one in found if one.matters],
        notes=notes,
        not_paired=paired.not_paired,
        joint=joint,
    )


def _scores_of_seeds(side: EvaluationSide, name: str, numbers: Sequence[int]) -> list[float]:
    """The score of each seed over these rows; a seed without a verdict in them has none."""
    scores = []
    for run in side.seeds:
        rows = _by_row([one for one in run.by_set.get(name, ()) if one.draft.valid])
        kept = [rows[number] for number in numbers if number in rows]
        if kept:
            task = tasks.load(kept[0][0].task)
            means = [_mean_reward(samples) for samples in kept]
            scores.append(sum(means) / len(means) if task.set_headline is None else score_of(task, kept).mean)
    return [score for score in scores if score is not None]


class Pair(NamedTuple):
    """One row in both runs, with the valid samples of each, at least one."""

    number: int
    base: Samples
    other: Samples


class Paired(NamedTuple):
    """The pairs of one set, in the order of its file.

    Attributes:
        not_paired: reason -> number of other rows; a row without a verdict in both runs counts twice.
        shortened: pairs whose record was shortened in a run to fit the model's context.
        failed: samples without a verdict in paired rows.
    """

    pairs: Sequence[Pair]
    not_paired: Mapping[str, int]
    shortened: int
    failed: int


def pair_up(base: Samples, other: Samples) -> Paired:
    """Pair the rows of one set, given each run's samples of it in any order."""
    left, right = _by_row(base), _by_row(other)
    both = sorted(left.keys() & right.keys())
    same = [number for number in both if _same_record(left[number][0], right[number][0])]
    valid = [Pair(number, _valid(left[number]), _valid(right[number])) for number in same]
    pairs = [pair for pair in valid if pair.base and pair.other]
    counts = {
        "only in baseline": len(left) - len(both),
        "only in other": len(right) - len(both),
        "other record": len(both) - len(same),
        "invalid in baseline": sum(not pair.base for pair in valid),
        "invalid in other": sum(not pair.other for pair in valid),
    }
    samples = [[*left[pair.number], *right[pair.number]] for pair in pairs]
    return Paired(
        pairs,
        {reason: count for reason, count in counts.items() if count},
        sum(any(sample.shortened for sample in of_row) for of_row in samples),
        sum(not sample.draft.valid for of_row in samples for sample in of_row),
    )


def _same_record(one: SessionRecord, other: SessionRecord) -> bool:
    """Check whether two samples are of the same row.

    Fields that were shortened in one of them, or that only one version of the task has, are not compared.
    """
    cut = {*one.shortened, *other.shortened}
    left, right = one.record, other.record
    return one.task == other.task and all(left[key] == right[key] for key in left.keys() & right.keys() - cut)


def _by_row(samples: Samples) -> dict[int, list[SessionRecord]]:
    rows: dict[int, list[SessionRecord]] = {}
    for sample in sorted(samples, key=lambda sample: sample.key):
        rows.setdefault(sample.number, []).append(sample)
    return rows


def _mean_reward(samples: Samples) -> float:
    return statistics.fmean(sample.draft.reward for sample in samples if sample.draft.reward is not None)


def _valid(samples: Samples) -> Samples:
    return [sample for sample in samples if sample.draft.valid]
