"""Check the words of a command line before Hydra parses them, and quote values for Hydra.

Hydra's errors repeat the word that it cannot parse, so words that hold an API key must be refused first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from ditto.settings import BadConfig
from soul.cli.redaction import LIKE_A_KEY, redact_guessing

# `name=value` or `name: value` anywhere in a word: a setting, a dictionary entry, a parameter of a URL.
_PAIR = re.compile(r"""([\w.@-]+)["']?\s*[=:]\s*["']?([^\s,"'&\]}]+)""")
_SECRET_NAME = re.compile(
    r"(.*_)?(api_?key(?!_env$)\w*|secret|password|passwd|credentials?|token|auth)|key", re.IGNORECASE
)
_USER_AND_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
_EMPTY = ("null", "none", "''", '""')
# Sections whose keys are names of tasks; our own code checks these names and what is below them.
_KEYED_BY_TASK = re.compile(r"tasks\.|(judge\.by_task|data\.mixture\.weights)[.=]")


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


def check_words(words: Sequence[str], program: str) -> None:
    """Check that every word is a Hydra override.

    Args:
        program: the script to name in messages; it prints its usage with `--help`.

    Raises:
        BadConfig: for the first word that is not; the message names it.
    """
    parser = OverridesParser.create()
    for word in words:
        if word.startswith("-"):
            raise BadConfig(f"{word} is not an option. Write settings as key=value; see python {program} --help.")
        if "=" not in word and not word.startswith("~"):
            raise BadConfig(f"{word}: write settings as key=value, without spaces. See python {program} --help.")
        try:
            override = parser.parse_override(word)
        except HydraException as error:
            raise BadConfig(
                f"{word}: this cannot be parsed as key=value ({' '.join(str(error).split()[:20])}). A value with "
                "spaces, brackets, commas, = or quotes needs its own quotes inside those of the shell: \"run.dir='my "
                "folder'\"."
            ) from error
        if override.is_sweep_override():
            raise BadConfig(f"{word}: a run takes one value per key. Write a list in brackets: [a,b].")
        key = override.key_or_group
        if not key:
            raise BadConfig(f"{word}: there is no key before the =.")
        if "." not in key and not (override.is_add() or override.is_force_add() or override.is_delete()):
            if not isinstance(override.value(), str | list):
                raise BadConfig(f"{word}: {key} is a section. Set its keys one by one: {key}.NAME=value.")
        if override.get_key_element().lstrip("+~").startswith("hydra."):
            raise BadConfig(
                f"{word}: Hydra's own keys cannot be set here. Remove this word; run.dir sets the run's folder."
            )


def allowing_new_tasks(word: str) -> str:
    """An override that may name a task which the config files do not name; Hydra refuses new keys without a plus.

    Evaluation, which does not use Hydra, takes the same settings without a plus.
    """
    return f"++{word}" if _KEYED_BY_TASK.match(word) else word


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
