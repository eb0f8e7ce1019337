"""MirrorBench: mirrorbench/metrics of github.com/SAP/mirrorbench beside `soul.tasks.mirrorbench`."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.parity.comparison import Comparison, Score, authors_names
from soul.metrics.gpt4o_tokens import gpt4o_tokens
from soul.metrics.lexical import Lexis, lexis
from soul.tasks.mirrorbench_controls import Calibrated

METRICS = Path("mirrorbench") / "metrics"
TURNS = [
    ["Which ferry goes to the island?"],
    ["no", "No thanks", "no, really, no"],
    ["I\u2019d like 3 tickets \u2014 for two adults & a dog!!", "ok thx \U0001f44d"],
    ["so it leaves at nine and the other one at ten " * 9],
]
# Each sample's score, and those of its HH and PP controls.
CONTROLLED = [
    [(0.5, 1.0, 0.3), (0.7, 0.8, 0.3), (0.1, 0.9, 0.3)],
    [(0.9, 1.0, 1.0), (1.0, 1.0, 1.0)],
    [(0.4, 0.5, 0.6), (0.7, 0.5, 0.6)],
]


def _measure(name: str) -> Score:
    def score(turns: Sequence[str]) -> float:
        found = lexis(turns)
        return math.nan if found is None else float(getattr(found, name))

    return score


def _their_measure(name: str, *parameters: int) -> Callable[[Path], Score]:
    def load(clone: Path) -> Score:
        given = {"Counter": Counter, "comb": math.comb, "Sequence": Sequence}
        code = authors_names(clone / METRICS / "lexical" / f"{name}.py", [f"_{name}"], given)
        return lambda turns: float(code[f"_{name}"](gpt4o_tokens(" ".join(turns)), *parameters))

    return load


def _calibrated(samples: Sequence[tuple[float, float, float]]) -> float:
    columns = [np.array(column) for column in zip(*samples, strict=True)]
    count = len(samples)
    metric = Calibrated("gteval_calibrated", np.arange(count), np.ones(count), *columns)
    return float(metric.values(np.ones((1, count)))[0])


def _their_calibrated(clone: Path) -> Score:
    names = ("HH_LABEL", "PP_LABEL", "CONTROL_METADATA_KEY", "CalibrationAnchors", "derive_anchors")
    given = {"dataclass": dataclass, "mean": statistics.fmean, "Sequence": Sequence, "Iterable": Iterable}
    given |= {"MetricValue": Any, "__name__": "builtins"}
    path = clone / METRICS / "judge" / "calibration.py"
    code = SimpleNamespace(**authors_names(path, (*names, "apply_linear_calibration"), given))

    def score(samples: Sequence[tuple[float, float, float]]) -> float:
        controls = [{"controls": {"hh": {"score": hh}, "pp": {"score": pp}}} for _, hh, pp in samples]
        values = [SimpleNamespace(metadata=cast(Mapping[str, Any], one), values=[]) for one in controls]
        scores = code.apply_linear_calibration([one[0] for one in samples], code.derive_anchors(values))
        return statistics.fmean(scores)

    return score


_PARAMETERS = {"mattr": (50,), "hdd": (42,), "yules_k": ()}
_BASELINE = (
    "The values are the authors'; our z-scores take mean and deviation from all 795 published users, theirs from the "
    "rows of a run."
)
COMPARISONS = [
    *(
        Comparison(
            "mirrorbench",
            name,
            "authors",
            _BASELINE,
            "mirrorbench",
            TURNS,
            _measure(name),
            _their_measure(name, *_PARAMETERS[name]),
        )
        for name in Lexis._fields
    ),
    Comparison(
        "mirrorbench", "gteval_calibrated", "authors", "", "mirrorbench", CONTROLLED, _calibrated, _their_calibrated
    ),
    Comparison(
        "mirrorbench",
        "overall (headline)",
        "paper",
        "The authors' code has no overall score; ours is the paper's mean of GTEval, pairwise, rubric-and-reason and a "
        "lexical score, with prompts of our own.",
    ),
]
