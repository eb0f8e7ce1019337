"""Check the words of a command line before Hydra composes the config, and quote values for Hydra.

Hydra's errors repeat the word that it cannot parse, so words that hold an API key must be refused first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True)
class Program:
    """A program with a config: the script to name in messages, its config file, and the keys that it reads."""

    script: str
    directory: Path
    config: str
    keys: Keys
    instead: Mapping[str, str]  # key of verl that it does not read -> what to use in its place


def is_secret_name(key: str) -> bool:
    """Check whether a setting of this name would hold a secret."""
    return _SECRET_NAME.fullmatch(key.rpartition(".")[2]) is not None


def refuse_secrets(words: Sequence[str]) -> None:
    """Refuse words that hold an API key or a password. Raises BadConfig, which does not show the value."""
    for word in words:
        pairs = [(name, value) for name, value in _PAIR.findall(word) if value.lower() not in _EMPTY]
        named = [name for name, _ in pairs if is_secret_name(name)]
        if named or LIKE_A_KEY.search(word) or _USER_AND_PASSWORD.search(word):
            guess = "A word" if LIKE_A_KEY.match(word) else redact_guessing(word.partition("=")[0])
            raise BadConfig(
                f"{named[0] if named else guess} holds an API key or a password, or looks like it does (the value is "
                "not shown here). Secrets are not allowed in settings: every user of this machine can see a command "
                "line, and a run stores its config. Put the key into an environment variable: OPENAI_API_KEY, or "
                "another one that you name with judge.api_key_env=NAME."
            )


def checked(words: Sequence[str], program: Program) -> list[str]:
    """Check that every word sets a key that the program reads, and return the words as Hydra takes them.

    Hydra refuses a key that the config files do not hold yet; with two plus signs it takes it.
    """
    parser = OverridesParser.create()
    return [_checked(word, parser, program) for word in words]


def _checked(word: str, parser: OverridesParser, program: Program) -> str:
    if word.startswith("-"):
        raise BadConfig(f"{word} is not an option. Write settings as key=value; see python {program.script} --help.")
    if word.startswith("~"):
        raise BadConfig(f"{word}: a key cannot be removed. Leave it out, or set another value.")
    if "=" not in word.lstrip("=") or word.startswith("="):
        raise BadConfig(f"{word}: write settings as key=value, without spaces. See python {program.script} --help.")
    try:
        override = parser.parse_override(word)
    except HydraException as error:
        raise BadConfig(
            f"{word}: this cannot be parsed as key=value ({' '.join(str(error).split()[:20])}). A value with spaces, "
            "brackets, commas, = or quotes needs its own quotes inside those of the shell: \"run.dir='my folder'\"."
        ) from error
    if override.is_sweep_override():
        raise BadConfig(f"{word}: a run takes one value per key. Write a list in brackets: [a,b].")
    if override.key_or_group == "platform":
        return word
    check_keys({override.key_or_group: override.value()}, program)
    return f"++{word.lstrip('+')}"


def check_keys(values: Mapping[str, Any], program: Program) -> None:
    """Check that the program reads all of these keys.

    Args:
        values: dotted key, of a section too -> value.
    """
    for top, value in values.items():
        for key, inner in leaves(value, top):
            if covering(key, program.keys) is not None:
                continue
            below = [name for name in program.keys if name.startswith(f"{key}.")]
            if not below:
                raise BadConfig(unread(key, program.keys, program.instead, program.script))
            if inner != {}:
                raise BadConfig(f"{key}={shown(inner)}: {key} is a section. Set its keys one by one: {below[0]}=value.")


def quoted(key: str, text: str | Sequence[str], variable: str) -> str:
    """The override that sets a key to this text or list of texts, quoted for Hydra.

    Args:
        variable: the environment variable that the text comes from, for messages.
    """
    for part in [text] if isinstance(text, str) else text:
        if "${" in part or not part.isprintable():
            raise BadConfig(f"{variable}={part!r}: names and paths must not contain ${{ or line breaks. Rename it.")
    if isinstance(text, str):
        return f"{key}={QuotedString(text, Quote.single).with_quotes()}"
    return f"{key}=[{','.join(QuotedString(part, Quote.single).with_quotes() for part in text)}]"
