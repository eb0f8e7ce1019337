"""SocSci210: no public code of its authors is at hand; the distance is checked against SciPy's."""

from __future__ import annotations

from pathlib import Path

from benchmarks.parity.comparison import Comparison, Score
from soul.tasks.socsci210 import wasserstein

_SAMPLES = [([0, 1], [0, 1]), ([0, 0, 1], [1]), ([0.2, 0.4, 0.4], [0.5, 1, 0]), ([0] * 9 + [1], [0.25] * 10)]
_CELLS = (
    "the distance itself is compared with SciPy's, because the authors' code is not at hand; their paper compares "
    "distributions on scales from 0 to 1; by which cells it averages, and what an answer that cannot be read counts, "
    "is our choice: study, condition and question, and the farther end of the scale"
)


def _scipy(_: Path) -> Score:
    from scipy.stats import wasserstein_distance

    return lambda pair: float(wasserstein_distance(*pair))


COMPARISONS: list[Comparison] = [
    Comparison(
        "socsci210",
        "normalised_accuracy (headline)",
        "original",
        "1 - distance / width of the scale, and an exact match for categories; the authors compare distributions",
    ),
    Comparison("socsci210", "wasserstein", "authors", _CELLS, "", _SAMPLES, lambda pair: wasserstein(*pair), _scipy),
]
