"""Read an endpoint's key from the environment, and reject a value that cannot be a key before anything is sent.

A key with a line break or a curly quote would fail deep inside the HTTP library, with a message that names neither the
variable nor the cause. No message here contains the key.
"""

from __future__ import annotations

import os

from soul.cli.redaction import SHORTEST, is_placeholder, watch
from soul.errors import BadKey, MissingKey

_QUOTES = "\"'`"


def key_of(variable: str, server: str) -> str:
    """The key in this environment variable.

    Args:
        server: address and model of the endpoint, for messages.

    Raises:
        MissingKey: the variable is not set.
        BadKey: its value cannot be a key.
    """
    watch(variable)
    key = os.environ.get(variable)
    if not key:
        raise MissingKey(
            f"No key for the endpoint {server}: the environment variable {variable} is not set. Set it "
            f"(export {variable}=...), or name another variable with judge.api_key_env. If the server needs no key, "
            "use judge.api_key_env=none."
        )
    if (problem := _problem(key)) is not None:
        raise BadKey(
            f"The key for the endpoint {server}, in the environment variable {variable}, {problem}. Set the variable "
            f"to the key alone: export {variable}='...'. If the server needs no key, use judge.api_key_env=none."
        )
    return key


def _problem(key: str) -> str | None:
    if not all("!" <= character <= "~" for character in key):
        return "contains a blank, a line break or another character that no key has"
    if len(key) > 1 and key[0] in _QUOTES and key[-1] == key[0]:
        return "is enclosed in quotation marks, which are part of its value"
    if len(key) < SHORTEST and not is_placeholder(key):
        return f"is too short ({len(key)} characters, a key has at least {SHORTEST}; placeholders like EMPTY are fine)"
    return None
