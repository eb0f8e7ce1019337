"""Read gateway settings from command-line arguments: `judge.model=gpt-5.4 partner.concurrency=8 policy.model=mine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from soul.errors import BadSettings, one_line
from soul.judge.roles import ROLES


def sections_of(arguments: Sequence[str], more: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Parse arguments of the form `section.key=value`, with values in YAML, into sections.

    Args:
        more: sections to accept besides the roles and `policy`.

    Raises:
        BadSettings: an argument has another form or an unknown section, or its value is not YAML.
    """
    known = (*ROLES, "policy", *more)
    sections: dict[str, dict[str, Any]] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        section, *path = key.split(".")
        if not equals or not path or section not in known:
            # Leave the value out of the message: it may be an API key.
            raise BadSettings(f"{key!r}: write section.key=value, where section is one of {', '.join(known)}.")
        place = sections.setdefault(section, {})
        for name in path[:-1]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise BadSettings(f"{key!r}: another argument sets {name!r} to a value, so it cannot have keys.")
        try:
            place[path[-1]] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            reason = one_line(error)
            raise BadSettings(f"{key!r}: the value is not valid YAML ({reason}). Put it in quotes.") from None
    return sections
