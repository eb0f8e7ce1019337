"""Read environment variables whose text has a form: names, and yes or no. Every launcher reads them in the same way."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from soul.errors import BadSettings


def names_in(variable: str, environment: Mapping[str, str]) -> list[str]:
    """The space-separated names in a variable; a name that contains spaces is in quotes.

    Raises:
        BadSettings: a quote is not closed.
    """
    try:
        return shlex.split(environment.get(variable, ""))
    except ValueError as error:
        raise BadSettings(
            f"{variable}={environment[variable]}: a quote is not closed ({error}). Separate names with spaces, put a "
            "name that contains spaces in quotes, and put a backslash before a quote that is part of a name."
        ) from error


def says_yes(variable: str, environment: Mapping[str, str]) -> bool:
    """Whether a variable is 1 or true; 0, false, or nothing mean no.

    Raises:
        BadSettings: it says something else.
    """
    value = environment.get(variable, "").lower()
    if value not in ("", "0", "1", "true", "false"):
        raise BadSettings(f"{variable}={environment[variable]}: use 1 or 0.")
    return value in ("1", "true")
