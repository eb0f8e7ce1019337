"""Check the words of a command line before Hydra composes the config, and quote values for Hydra.

Hydra's errors repeat the word that it cannot parse, so words that hold an API key must be refused first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from ditto.config_checks.key_types import Keys, covering, leaves, shown, unread
from ditto.settings import BadConfig
from soul.cli.redaction import LIKE_A_KEY, redact_guessing

# `name=value` or `name: value` anywhere in a word: a setting, a dictionary entry, a parameter of a URL.
_PAIR = re.compile(r"""([\w.@-]+)["']?\s*[=:]\s*["']?([^\s,"'&\]}]+)""")
_SECRET_NAME = re.compile(
    r"(.*_)?(api_?key(?!_env$)\w*|secret|password|passwd|credentials?|token|auth)|key", re.IGNORECASE
)
_USER_AND_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
_EMPTY = ("null", "none", "''", '""')


def is_secret_name(key: str) -> bool:
    """Whether a setting of this name would hold a secret."""
    return _SECRET_NAME.fullmatch(key.rpartition(".")[2]) is not None


def refuse_secrets(words: Sequence[str]) -> None:
    """Refuse words that hold an API key or a password.

    Raises:
        BadConfig: it names the setting and does not show the value.
    """
    for word in words:
        pairs = [(name, value) for name, value in _PAIR.findall(word) if value.lower() not in _EMPTY]
        named = [name for name, _ in pairs if is_secret_name(name)]
        if not named and not LIKE_A_KEY.search(word) and not _USER_AND_PASSWORD.search(word):
            continue
        setting = named[0] if named else "A word" if LIKE_A_KEY.match(word) else redact_guessing(word.partition("=")[0])
        raise BadConfig(
            f"{setting} holds an API key or a password, or looks like it does (the value is not shown here). Secrets "
            "are not allowed in settings: every user of this machine can see a command line, and a run stores its "
            "config. Put the key into an environment variable: OPENAI_API_KEY, or another one that you name with "
            "judge.api_key_env=NAME."
        )


def checked(words: Sequence[str], keys: Keys, instead: Mapping[str, str], program: str) -> list[str]:
    """Check that every word sets a key that the training reads, and return the words as Hydra takes them.

    Hydra refuses a key that the config files do not hold yet; with two plus signs it takes it.

    Args:
        keys: what the training reads.
        instead: what to use in place of keys that it does not read, for messages.
        program: the script to name in messages; it prints its usage with `--help`.

    Raises:
        BadConfig: for the first word that does not; the message names it.
    """
    parser = OverridesParser.create()
    return [_checked(word, parser, keys, instead, program) for word in words]


def _checked(word: str, parser: OverridesParser, keys: Keys, instead: Mapping[str, str], program: str) -> str:
    if word.startswith("-"):
        raise BadConfig(f"{word} is not an option. Write settings as key=value; see python {program} --help.")
    if word.startswith("~"):
        raise BadConfig(f"{word}: a key cannot be removed. Leave it out, or set another value.")
    if "=" not in word:
        raise BadConfig(f"{word}: write settings as key=value, without spaces. See python {program} --help.")
    try:
        override = parser.parse_override(word)
    except HydraException as error:
        raise BadConfig(
            f"{word}: this cannot be parsed as key=value ({' '.join(str(error).split()[:20])}). A value with "
            "spaces, brackets, commas, = or quotes needs its own quotes inside those of the shell: \"run.dir='my "
            "folder'\"."
        ) from error
    key = override.key_or_group
    if override.is_sweep_override():
        raise BadConfig(f"{word}: a run takes one value per key. Write a list in brackets: [a,b].")
    if not key:
        raise BadConfig(f"{word}: there is no key before the =.")
    if key == "platform":
        return word
    check_keys({key: override.value()}, keys, instead, program)
    return f"++{word.lstrip('+')}"


def check_keys(values: Mapping[str, Any], keys: Keys, instead: Mapping[str, str], program: str) -> None:
    """Check that the training reads all of these keys.

    Args:
        values: dotted key, of a section too -> value.

    Raises:
        BadConfig: for the first one that it does not read, or for a section whose value is no section.
    """
    for top, value in values.items():
        for key, inner in leaves(value, top):
            if covering(key, keys) is not None:
                continue
            below = [name for name in keys if name.startswith(f"{key}.")]
            if not below:
                raise BadConfig(unread(key, keys, instead, program))
            if inner != {}:
                raise BadConfig(f"{key}={shown(inner)}: {key} is a section. Set its keys one by one: {below[0]}=value.")


def quoted(key: str, text: str | Sequence[str], variable: str) -> str:
    """The override that sets a key to this text or list of texts, quoted for Hydra.

    Args:
        variable: the environment variable that the text comes from, for messages.

    Raises:
        BadConfig: the text contains a line break, or `${`, which Hydra would read as a reference to another key.
    """
    for part in [text] if isinstance(text, str) else text:
        if "${" in part or not part.isprintable():
            raise BadConfig(
                f"{variable}={part!r}: names and paths must not contain ${{ or line breaks here. Rename it."
            )
    if isinstance(text, str):
        return f"{key}={QuotedString(text, Quote.single).with_quotes()}"
    return f"{key}=[{','.join(QuotedString(part, Quote.single).with_quotes() for part in text)}]"
