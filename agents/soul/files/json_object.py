"""Read a file that holds one JSON object: settings of a run, the config of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from soul.errors import SoulError


def read_object(path: Path, kind: type[SoulError], remedy: str) -> dict[str, Any]:
    """The object.

    Args:
        kind: of the error if the file holds something else.
        remedy: what to do then, a sentence.

    Raises:
        SoulError: of that kind; it names the file. OSError: the file cannot be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise kind(f"{path}: not readable as JSON ({error}). {remedy}") from None
    if not isinstance(value, dict):
        raise kind(f"{path}: holds no JSON object. {remedy}")
    return value
