"""Which metrics docs/metrics.md names."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACEHOLDER = re.compile(r"<\w+>")


@cache
def documented() -> tuple[str, ...]:
    """The names in the first column of the page's tables of metrics; <task>, <role> and so on stand for one part."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    return tuple(name for cell in cells for name in re.findall(r"`([^`]+)`", cell))


def _matches(pattern: str, name: str, one_part: str) -> bool:
    return re.fullmatch(one_part.join(re.escape(part) for part in PLACEHOLDER.split(pattern)), name) is not None


def undocumented(names: Iterable[str]) -> list[str]:
    """The names that are not on the page.

    Args:
        names: metrics, or their f-strings with <value> for what code fills in; such a one needs a name that fits it.
    """
    return sorted(
        name
        for name in names
        if not any(_matches(entry, name, "[^/]+") or _matches(name, entry, ".+") for entry in documented())
    )
