"""Hi-ToM: its repository publishes no scoring code, so the definitions come from papers and the original."""

from __future__ import annotations

from benchmarks.parity.comparison import Comparison

_JOINT = "from the benchmark's paper; its repository (github.com/ying-hui-he/Hi-ToM_dataset) has no code that scores"
COMPARISONS: list[Comparison] = [
    Comparison(
        "hitom", "accuracy (headline)", "paper", "an option's text counts beside its letter, unless strict_answers"
    ),
    *(Comparison("hitom", f"joint_accuracy_order_{order}", "authors", _JOINT) for order in range(1, 5)),
]
