"""Reads an endpoint's key from the environment, and refuses a text that cannot be a key, before anything is sent.

A key with a line break or a curly quote fails deep inside the HTTP library, where the message would name neither the
variable nor the cause. The key itself is in no message.
"""

from __future__ import annotations

import os
import unicodedata

from soul.cli.redaction import SHORTEST, is_placeholder, watch
from soul.errors import BadKey, MissingKey

_QUOTES = "\"'`"


def key_of(variable: str, server: str) -> str:
    """The key in this environment variable.

    Args:
        server: address and model, for messages.

    Raises:
        MissingKey: the variable is not set.
        BadKey: it holds a text that cannot be a key.
    """
    watch(variable)
    key = os.environ.get(variable)
    if not key:
        raise MissingKey(
            f"No key for the endpoint {server}: the environment variable {variable} is not set. Export it "
            f"(export {variable}=...), or name another one with judge.api_key_env; judge.api_key_env=none is for a "
            "server that needs no key."
        )
    if (problem := _problem(key)) is not None:
        raise BadKey(
            f"The key for the endpoint {server}, in the environment variable {variable}, {problem}. Copy the key "
            f"alone: export {variable}='...'; judge.api_key_env=none is for a server that needs no key."
        )
    return key


def _problem(key: str) -> str | None:
    if not key.strip():
        return "is blank"
    if key != key.strip():
        end = "begins" if key[0].isspace() else "ends"
        blank = "a line break" if (key[0] if end == "begins" else key[-1]) in "\r\n" else "a space"
        return f"{end} with {blank}"
    if len(key) > 1 and key[0] in _QUOTES and key[-1] == key[0]:
        return "stands in quotation marks, and they are part of its value"
    strange = next((character for character in key if not "!" <= character <= "~"), None)
    if strange is not None:
        name = unicodedata.name(strange, f"U+{ord(strange):04X}").lower()
        return f"holds a character that no key has ({name})"
    if len(key) < SHORTEST and not is_placeholder(key):
        return f"is too short for a key ({len(key)} of at least {SHORTEST} characters; EMPTY and the like are fine)"
    return None
