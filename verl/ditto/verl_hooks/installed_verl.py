"""Name what another verl than the pinned one lacks of what our code takes, before anything starts."""

import ast
import importlib
from collections.abc import Iterator
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from soul.errors import SoulError, one_line

_OURS = Path(__file__).resolve().parents[1]  # sft takes the same names, and fewer


class OtherVerl(SoulError):
    """The installed verl lacks what our code imports."""


def describe() -> str | None:
    """A line of the plan about a verl that is not pinned, or None. Raises OtherVerl if it lacks what we import."""
    pinned = next(rule for rule in map(Requirement, requires("ditto-soul") or []) if rule.name == "verl")
    installed = version("verl")
    if pinned.specifier.contains(installed, prereleases=True):
        return None
    tested = f"{installed} is installed; we test with {pinned.specifier}"
    if lacking := list(_lacking(_OURS)):
        raise OtherVerl(
            f"verl {tested}. It lacks: {'; '.join(lacking)}. Install verl{pinned.specifier} (`bash scripts/env` does), "
            "or adapt these lines."
        )
    return f"{tested}. It has every name that we import; `bash scripts/test --verl` compares more"


def _lacking(folder: Path) -> Iterator[str]:
    """The names of verl that files below the folder import in vain, each with its place."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] != "verl":
                continue
            place = f"{path.relative_to(folder)}:{node.lineno}"
            try:
                module = importlib.import_module(str(node.module))
            except ImportError as error:
                yield f"{node.module} ({place}: {one_line(error, 120)})"
                continue
            for name in (alias.name for alias in node.names):
                submodule = hasattr(module, "__path__") and find_spec(f"{node.module}.{name}")
                if not hasattr(module, name) and not submodule:
                    yield f"{node.module}.{name} ({place})"
