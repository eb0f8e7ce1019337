"""Read a file that holds one JSON object: settings of a run, the config of a model."""

import json
from pathlib import Path
from typing import Any

from soul.errors import SoulError


def read_object(path: Path, kind: type[SoulError], remedy: str) -> dict[str, Any]:
    """Read the object.

    Args:
        kind: the class of the error if the file holds anything else.
        remedy: a sentence that tells the user what to do then.

    Raises:
        SoulError: of class `kind`; it names the file. OSError: the file cannot be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise kind(f"{path} is not valid JSON ({error}). {remedy}") from None
    if not isinstance(value, dict):
        raise kind(f"{path} is not a JSON object. {remedy}")
    return value
