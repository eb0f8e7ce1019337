"""The words of a command line, before Hydra reads them: no key among them, each one an override, values quoted.

Hydra repeats a word that it cannot read in its error, so a key must be seen before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from ditto.settings import BadConfig
from soul.cli.redaction import LIKE_A_KEY, redact_guessing

# `name=value` or `name: value` anywhere in a word: a setting, a key of a dictionary, a part of a URL's query.
_PAIR = re.compile(r"""([\w.@-]+)["']?\s*[=:]\s*["']?([^\s,"'&\]}]+)""")
_SECRET_NAME = re.compile(
    r"(.*_)?(api_?key(?!_env$)\w*|secret|password|passwd|credentials?|token|auth)|key", re.IGNORECASE
)
_USER_AND_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
_NOTHING = ("null", "none", "''", '""')


def is_secret_name(key: str) -> bool:
    """Whether a setting of this name would hold a secret."""
    return _SECRET_NAME.fullmatch(key.rpartition(".")[2]) is not None


def refuse_secrets(words: Sequence[str]) -> None:
    """Refuse a key among the words, without repeating it.

    Raises:
        BadConfig: naming the setting.
    """
    for word in words:
        pairs = [(name, value) for name, value in _PAIR.findall(word) if value.lower() not in _NOTHING]
        named = [name for name, _ in pairs if is_secret_name(name)]
        if not named and not LIKE_A_KEY.search(word) and not _USER_AND_PASSWORD.search(word):
            continue
        setting = named[0] if named else "A word" if LIKE_A_KEY.match(word) else redact_guessing(word.partition("=")[0])
        raise BadConfig(
            f"{setting} holds a key, or looks as if it did. The value is not shown here. A key stands in no setting: "
            "everybody on this machine sees a command line, and a run keeps its config. Put it into an environment "
            "variable (OPENAI_API_KEY, or another that you name with judge.api_key_env=NAME)."
        )


def check_words(words: Sequence[str], program: str) -> None:
    """Check that every word is an override.

    Args:
        program: which shows its usage with `--help`.

    Raises:
        BadConfig: naming the word.
    """
    parser = OverridesParser.create()
    for word in words:
        if word.startswith("-"):
            raise BadConfig(f"{word} is no option. What is set is written key=value; see python {program} --help.")
        if "=" not in word and not word.startswith("~"):
            raise BadConfig(f"{word}: a setting is written key=value, without spaces. See python {program} --help.")
        try:
            override = parser.parse_override(word)
        except HydraException as error:
            raise BadConfig(
                f"{word}: this cannot be read as key=value ({' '.join(str(error).split()[:20])}). A value with spaces, "
                "brackets, commas, = or quotes stands in quotes of its own, inside those of the shell: "
                "\"run.dir='my folder'\"."
            ) from error
        if override.is_sweep_override():
            raise BadConfig(f"{word}: one run takes one value. A list is written in brackets: [a,b].")
        key = override.key_or_group
        if not key:
            raise BadConfig(f"{word}: there is no key before the =.")
        if "." not in key and not (override.is_add() or override.is_force_add() or override.is_delete()):
            if not isinstance(override.value(), str | list):
                raise BadConfig(f"{word}: {key} is a section. Set its keys one by one: {key}.NAME=value.")
        if override.get_key_element().lstrip("+~").startswith("hydra."):
            raise BadConfig(f"{word}: the keys of Hydra itself are not settings here.")


def quoted(key: str, text: str | Sequence[str], variable: str) -> str:
    """The override that gives a key this text, whatever signs it holds, or this list of texts.

    Args:
        variable: where the text comes from, for the message.

    Raises:
        BadConfig: it holds a line break or `${`, which would be taken for a reference to another key.
    """
    for part in [text] if isinstance(text, str) else text:
        if "${" in part or not part.isprintable():
            raise BadConfig(
                f"{variable}={part!r}: names and paths can hold neither ${{ nor line breaks here. Rename it."
            )
    if isinstance(text, str):
        return f"{key}={QuotedString(text, Quote.single).with_quotes()}"
    return f"{key}=[{','.join(QuotedString(part, Quote.single).with_quotes() for part in text)}]"
