"""The file of accuracies: `recipe.demo.evaluate` writes it, `recipe.demo.summary` shows it."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from soul.errors import SoulError
from soul.validation_errors import first_problem

Accuracies = dict[str, dict[str, float]]  # name of a model -> "sampled", "sampled_se", "greedy", "rows", "samples"


class BadAccuracies(SoulError):
    """A file is not one that `recipe.demo.evaluate` wrote."""


def read_accuracies(file: Path) -> Accuracies:
    """Read the file.

    Raises:
        BadAccuracies: it is not a JSON object of that form.
    """
    remedy = f"python -m recipe.demo.evaluate --out {file} writes it."
    try:
        accuracies = TypeAdapter(Accuracies).validate_json(file.read_bytes())
    except ValidationError as error:
        raise BadAccuracies(f"{file}: {first_problem(error).message}. {remedy}") from None
    for name, values in accuracies.items():
        if missing := {"sampled", "greedy"} - values.keys():
            raise BadAccuracies(f"{file}: {name} has no {' and no '.join(sorted(missing))}. {remedy}")
    return accuracies
