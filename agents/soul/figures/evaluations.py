"""Evaluations by name: several folders of one name are seeds, and each row's score is its mean over them.

Seeds become further samples of the same rows, so that intervals and paired tests are those of `soul.evaluate.numbers`
and `soul.compare`: over rows. How far seeds differ is shown beside, as the range of their scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from soul.compare.protocol import deviations
from soul.errors import SoulError
from soul.evaluate.numbers.results import Results, summarise_run
from soul.evaluate.run.journal import FILE
from soul.evaluate.run.run_folder import EvaluationRun
from soul.record import SessionRecord
from soul.rows.data_card import sha256


class MixedSeeds(SoulError):
    """Two evaluations of one name were scored in different ways, so they are not seeds of one thing."""


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of one name."""

    name: str
    seeds: tuple[EvaluationRun, ...]

    @classmethod
    def load(cls, name: str, folders: Sequence[Path]) -> Evaluations:
        """Read the folders.

        Raises:
            BadRun: one of them is not the folder of an evaluation.
            MixedSeeds: two of them were scored in different ways.
        """
        first, *others = seeds = [EvaluationRun.load(folder) for folder in folders]
        for run in others:
            _check_same_protocol(name, first, run)
        return cls(name, tuple(seeds))

    @cached_property
    def run(self) -> EvaluationRun:
        """All seeds as one evaluation with more samples a row."""
        first, *others = self.seeds
        if not others:
            return first
        wanted = {name: 0 for run in self.seeds for name in run.wanted}
        for run in self.seeds:
            for name, count in run.wanted.items():
                wanted[name] += count
        return replace(first, samples=list(_renumbered(self.seeds)), wanted=wanted, n=sum(run.n for run in self.seeds))

    @cached_property
    def results(self) -> Results:
        """The numbers over all seeds."""
        return summarise_run(self.run)

    @cached_property
    def seed_results(self) -> tuple[Results, ...]:
        """The numbers of each seed."""
        return tuple(map(summarise_run, self.seeds))

    @cached_property
    def sources(self) -> list[tuple[str, Path, str]]:
        """Name, folder and hash of the samples of each seed."""
        return [(self.name, run.folder, sha256(run.folder / FILE)) for run in self.seeds]


def _check_same_protocol(name: str, first: EvaluationRun, run: EvaluationRun) -> None:
    for of_set in first.sets:
        left, right = first.by_set[of_set], run.by_set.get(of_set, ())
        if left and right:
            for deviation in deviations(first, run, left, right):
                if deviation.matters:
                    raise MixedSeeds(
                        f"--evals {name}: {first.folder} and {run.folder} are not seeds of one thing in {of_set} "
                        f"({deviation.text}). Give them different names, or score one again "
                        "(soul evaluate --rescore)."
                    )


def _renumbered(seeds: Sequence[EvaluationRun]) -> Iterator[SessionRecord]:
    """The samples of all seeds, each under a number of its own."""
    first = 0
    for run in seeds:
        yield from (sample.model_copy(update={"sample": first + sample.sample}) for sample in run.samples)
        first += 1 + max((sample.sample for sample in run.samples), default=0)
