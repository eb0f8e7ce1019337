"""Lines of cells as CSV: what a figure or a table shows, for other tools."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any


def as_csv(lines: Iterable[Sequence[Any]]) -> str:
    """The lines as one text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
