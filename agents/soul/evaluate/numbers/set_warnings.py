"""Warnings that a set's score may be wrong for the model.

Every row scores 0, or few answers could be read: the usual causes are a truncated answer, a wrong chat template, or an
answer outside the tag. Or the judge failed its test, or the rows replace the paper's. Report and terminal show these
warnings beside the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.run.judge_check import judge_warning

READABLE = 0.8  # a smaller share of readable answers gets a warning
FEWEST_ROWS = 5  # with fewer rows, a score of 0 is not unusual


@dataclass(frozen=True)
class SetWarning:
    """A warning about one set.

    Attributes:
        title: the problem; the same text for every set.
        advice: what to check, in one or two sentences.
        detail: the set's own number.
    """

    title: str
    advice: str
    detail: str

    def __str__(self) -> str:
        return f"{self.title} ({self.detail}). {self.advice}"


def warnings_of(result: SetResult) -> list[SetWarning]:
    """The warnings about one set."""
    warnings = []
    if result.stands_in:
        warnings.append(
            SetWarning(
                "Other rows than the paper's",
                "Such a set is marked with *, and no published number is beside it or beside an average over it.",
                result.stands_in,
            )
        )
    means = [row.mean for row in result.per_row if row.mean is not None]
    if (
        len(means) >= FEWEST_ROWS
        and result.headline.higher_is_better
        and set(means) in ({0.0}, {result.headline.worst})
    ):
        warnings.append(
            SetWarning(
                f"Every row scores exactly {100 * means[0]:.1f}".removesuffix(".0"),
                "Open a few samples before you trust this. Is there an answer, is it complete, and does it have the "
                "form that the prompt asks for?",
                f"{len(means):,} rows",
            )
        )
    readable = result.metrics.get("answered")
    if readable is not None and readable < READABLE:
        warnings.append(
            SetWarning(
                "Few answers have the form that the prompt asks for",
                "Open a few samples. Is the tag or the label missing, or did the model stop before it "
                "(policy.max_output_tokens)? An answer that could not be read scores as wrong.",
                f"{100 * readable:.0f} % read",
            )
        )
    for model, problems in result.judge_problems.items():
        warnings.append(
            SetWarning(
                judge_warning(model, problems),
                "Its scores are marked with ?. Name a stronger judge (judge.model=...), or judge the same episodes "
                "again (--rescore). To see the replies: soul judge canaries.",
                "no score" if result.mean is None else f"score {100 * result.mean:.1f}",
            )
        )
    return warnings


def grouped(sets: Mapping[str, SetResult]) -> dict[SetWarning, dict[str, str]]:
    """The warnings about several sets, in the order of the sets: warning without detail -> set -> detail."""
    groups: dict[SetWarning, dict[str, str]] = {}
    for name, result in sets.items():
        for warning in warnings_of(result):
            groups.setdefault(SetWarning(warning.title, warning.advice, ""), {})[name] = warning.detail
    return groups


def warning_lines(sets: Mapping[str, SetResult]) -> list[str]:
    """The warnings about several sets, one line per warning."""
    return [
        f"{warning.title}: {', '.join(f'{name} ({detail})' for name, detail in by_set.items())}. {warning.advice}"
        for warning, by_set in grouped(sets).items()
    ]
