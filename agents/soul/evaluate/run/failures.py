"""Samples without a verdict: how many, why, and which command runs them again.

If all verdicts of a run failed, there is no result: the command prints the cause above its table and exits with code 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from soul import tasks
from soul.errors import INFRASTRUCTURE, SoulError
from soul.evaluate.run.run_folder import EvaluationRun
from soul.record import SessionRecord

MANY = 0.5  # a larger share of failed samples gets a warning
_RUN_AGAIN: frozenset[str] = INFRASTRUCTURE  # by the same command
_SHOWN = 400  # characters shown of an endpoint's message


class NoVerdict(SoulError):
    """All verdicts of a run failed."""

    exit_code: ClassVar[int] = 1


@dataclass
class Failures:
    """The failed samples of one or several runs.

    Attributes:
        samples: number of all samples; `judged`: of those whose task has a judge.
        judged_failed: failed samples among `judged`.
        causes: cause -> failed samples; `last`: cause -> message of its last failure.
        unplayed: in a rescored run, failed samples that have no episode in the original run.
    """

    samples: int = 0
    judged: int = 0
    judged_failed: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    last: dict[str, str] = field(default_factory=dict)
    unplayed: int = 0

    @classmethod
    def from_run(cls, run: EvaluationRun) -> Failures:
        """The failures of a run."""
        failures = cls()
        failures.add(run.samples)
        if "episodes_of" in run.settings:
            unplayed = [str(sample.draft.cause) for sample in run.samples if sample.draft.seats is None]
            failures.unplayed = len(unplayed)
            failures.causes -= Counter(unplayed)
        return failures

    def add(self, samples: Iterable[SessionRecord]) -> None:
        """Count more samples."""
        asks_judge: dict[str, bool] = {}
        for sample in samples:
            name, cause = sample.task, sample.draft.cause
            if name not in asks_judge:
                asks_judge[name] = bool(tasks.load(name).calls_per_episode.get("judge"))
            self.samples += 1
            self.judged += asks_judge[name]
            if cause is None:
                continue
            self.judged_failed += asks_judge[name]
            self.causes[cause] += 1
            self.last[cause] = sample.draft.failure.detail if sample.draft.failure else ""

    @property
    def failed(self) -> int:
        """Samples without a verdict."""
        return self.causes.total() + self.unplayed

    @property
    def no_verdict(self) -> bool:
        """Check whether everything failed: all samples, or all that a judge scores."""
        return 0 < self.samples == self.failed or 0 < self.judged == self.judged_failed

    def cause(self) -> str | None:
        """Why everything failed, in one line; None if something succeeded."""
        if not self.no_verdict:
            return None
        if not self.causes:
            return f"All {self.samples:,} samples failed: the original run has no episodes to judge."
        most = self.causes.most_common(1)[0][0]
        everything = self.samples == self.failed
        which = f"{self.samples:,} samples" if everything else f"{self.judged:,} samples that a judge scores"
        return f"All {which} failed ({_counts(self.causes)}). Last {most}: {self.last[most][:_SHOWN].rstrip('.')}."

    def lines(self) -> list[str]:
        """The last lines of a run: how to run the failed samples again, and a warning if there are many."""
        if not self.failed:
            return []
        lines = [f"{self.failed:,} of {self.samples:,} samples failed. {self.remedy()}"]
        if self.failed > MANY * self.samples and not self.no_verdict:
            share = self.failed / self.samples
            lines.append(f"WARNING: {share:.0%} of all samples have no verdict. The scores cover only the others.")
        return lines

    def remedy(self) -> str:
        """How to run the failed samples again."""
        again = Counter({cause: n for cause, n in self.causes.items() if cause in _RUN_AGAIN})
        kept = self.causes - again
        texts = []
        if again:
            texts.append(
                f"{again.total():,} because of endpoints or limits ({_counts(again)}): the same command runs them "
                "again."
            )
        if kept:
            texts.append(
                f"{kept.total():,} because of an answer or a request ({_counts(kept)}): only the same command with "
                "--retry-failed runs them again."
            )
        if self.unplayed:
            texts.append(
                f"{self.unplayed:,} have no episode: run them again in the original run, then repeat this command."
            )
        return " ".join(texts)

    def require_verdict(self) -> None:
        """Check that something succeeded.

        Raises:
            NoVerdict: with the cause.
        """
        if cause := self.cause():
            raise NoVerdict(f"{cause} {self.remedy()}")


def _counts(causes: Counter[str]) -> str:
    return ", ".join(f"{cause} {n:,}" for cause, n in causes.most_common())
