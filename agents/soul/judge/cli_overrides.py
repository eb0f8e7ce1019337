"""Settings of the gateway as words of a command line: `judge.model=gpt-5.4 partner.concurrency=8 policy.model=mine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from soul.errors import BadSettings
from soul.judge.roles import ROLES


def sections_of(words: Sequence[str], more: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Settings from words `section.key=value`; values are read as YAML.

    Args:
        more: sections that are known beside the roles and the policy.

    Raises:
        BadSettings: a word of another form, or of an unknown section.
    """
    known = (*ROLES, "policy", *more)
    sections: dict[str, dict[str, Any]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        section, *path = key.split(".")
        if not equals or not path or section not in known:
            # The value is not repeated: it may be a key.
            raise BadSettings(f"{key!r}: write section.key=value with a section of {', '.join(known)}.")
        place = sections.setdefault(section, {})
        for name in path[:-1]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise BadSettings(f"{key!r}: another word gives {name!r} a value, so it has no keys.")
        try:
            place[path[-1]] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise BadSettings(f"{key!r}: the value cannot be read as YAML ({reason}); put it in quotes.") from None
    return sections
