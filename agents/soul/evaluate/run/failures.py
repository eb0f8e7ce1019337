"""Samples without a verdict: how many, why, and which command runs them again.

If all verdicts of a run failed, there is no result: the command prints the cause above its table and exits with code 1.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from soul.errors import INFRASTRUCTURE, RunFailed
from soul.record import SessionRecord

MANY = 0.5  # a larger share of failed samples gets a warning
_SHOWN = 400  # characters shown of an endpoint's message


class NoVerdict(RunFailed):
    """All verdicts of a run failed."""


@dataclass
class Failures:
    """The failed samples of one or several runs.

    Attributes:
        samples: number of all samples.
        causes: cause -> failed samples; `last`: cause -> message of its last failure.
    """

    samples: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    last: dict[str, str] = field(default_factory=dict)

    def add(self, samples: Iterable[SessionRecord]) -> None:
        """Count more samples."""
        for sample in samples:
            self.samples += 1
            if failure := sample.draft.failure:
                self.causes[failure.cause] += 1
                self.last[failure.cause] = failure.detail

    def cause(self) -> str | None:
        """The reason in one line if every sample failed; None if one succeeded."""
        if not 0 < self.samples == self.causes.total():
            return None
        most = self.causes.most_common(1)[0][0]
        last = self.last[most][:_SHOWN].rstrip(".")
        return f"All {self.samples:,} samples failed ({_counts(self.causes)}). Last {most}: {last}."

    def lines(self) -> list[str]:
        """The last lines of a run: how to run the failed samples again, and a warning if there are many."""
        failed = self.causes.total()
        lines = [f"{failed:,} of {self.samples:,} samples failed. {self.remedy()}"] if failed else []
        if MANY * self.samples < failed < self.samples:
            share = failed / self.samples
            lines.append(f"WARNING: {share:.0%} of all samples have no verdict. The scores cover only the others.")
        return lines

    def remedy(self) -> str:
        """The command that runs the failed samples again, by their causes."""
        again, kept = Counter[str](), Counter[str]()
        for cause, count in self.causes.items():
            (again if cause in INFRASTRUCTURE else kept)[cause] = count
        which = (
            ("endpoints or limits", again, "the same command runs them again."),
            ("an answer or a request", kept, "only the same command with --retry-failed runs them again."),
        )
        return " ".join(
            f"{causes.total():,} because of {why} ({_counts(causes)}): {remedy}"
            for why, causes, remedy in which
            if causes
        )

    def require_verdict(self) -> None:
        """Check that something succeeded. Raises NoVerdict, which names the cause, if nothing did."""
        if cause := self.cause():
            raise NoVerdict(f"{cause} {self.remedy()}")


def _counts(causes: Counter[str]) -> str:
    return ", ".join(f"{cause} {n:,}" for cause, n in causes.most_common())
