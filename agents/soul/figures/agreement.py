"""The table of judges against people (the paper's table 5), from what `soul judge agree --json` writes."""

from __future__ import annotations

import hashlib
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from soul.cli.arguments import existing_file
from soul.errors import BadSettings
from soul.judge.audit.agreement_statistics import Estimate
from soul.judge.audit.human_agreement import Agreement, MetricAgreement
from soul.table import NONE, Cell, Table

_CORRELATIONS = ("pearson", "spearman", "kendall")


class NamedFile(NamedTuple):
    """A judge's name and its file."""

    name: str
    path: Path


def named_file(text: str) -> NamedFile:
    """The type of an argument NAME=FILE."""
    name, equals, file = text.partition("=")
    if not (name.strip() and equals and file):
        raise ArgumentTypeError(f"{text!r}: write NAME=FILE, such as gpt-5-nano=agree.json")
    return NamedFile(name.strip(), existing_file(file))


@dataclass(frozen=True)
class JudgeAgreement:
    """One judge's agreement with people, and the file that it was read from."""

    name: str
    path: Path
    sha256: str
    agreement: Agreement

    @classmethod
    def load(cls, named: NamedFile) -> JudgeAgreement:
        """Read a file of `soul judge agree --json`.

        Raises:
            BadSettings: it is none.
        """
        content = named.path.read_bytes()
        try:
            agreement = Agreement.from_json(content)
        except ValueError as error:
            raise BadSettings(
                f"--agreement {named.name}: {named.path} is not what `soul judge agree --json FILE` writes "
                f"({str(error).splitlines()[0]})."
            ) from None
        return cls(named.name, named.path, hashlib.sha256(content).hexdigest(), agreement)


def agreement_table(judges: Sequence[JudgeAgreement]) -> Table:
    """A line for each judge and metric."""
    head = ("judge", "metric", "pairs", "no verdict", *_CORRELATIONS, "accuracy", "kappa", "people's alpha")
    body: list[list[Cell]] = []
    data: list[tuple[Any, ...]] = [("judge", "metric", "pairs", "measure", "value", "low", "high", "sha256")]
    for judge in judges:
        for metric, measured in (("GTEval", judge.agreement.gteval), ("pairwise", judge.agreement.pairwise)):
            if measured is None:
                continue
            estimates = _estimates(measured)
            cells = [_cell(estimates.get(name)) for name in (*_CORRELATIONS, "accuracy", "kappa")]
            counts = (Cell(f"{measured.n:,}"), Cell(f"{measured.left_out:,}"))
            ceiling = Cell(NONE if measured.human_alpha is None else f"{measured.human_alpha:.2f}")
            body.append([Cell(judge.name), Cell(metric), *counts, *cells, ceiling])
            for name, each in estimates.items():
                numbers = ("" if value is None else value for value in (each.value, each.low, each.high))
                data.append((judge.name, metric, measured.n, name, *numbers, judge.sha256))
    caption = "Judges against people on the same pairs of conversations, with 95 % intervals."
    note = (
        "Correlations are over pairs, with the mean of a judge's repeats and of the annotators. People's alpha "
        "(Krippendorff) is how well annotators agree with each other: no judge can be expected to agree better."
    )
    sources = [(judge.name, judge.path, judge.sha256) for judge in judges]
    return Table(head, body, notes=[note], file="agreement", caption=caption, data=data, sources=sources)


def _estimates(metric: MetricAgreement) -> dict[str, Estimate]:
    named = {**metric.correlations, "accuracy": metric.accuracy, "kappa": metric.kappa}
    return {name: estimate for name, estimate in named.items() if estimate is not None}


def _cell(estimate: Estimate | None) -> Cell:
    if estimate is None or estimate.value is None:
        return Cell(NONE)
    interval = "" if estimate.low is None or estimate.high is None else f"{estimate.low:.2f} to {estimate.high:.2f}"
    return Cell(f"{estimate.value:.2f}", suffix=interval)
