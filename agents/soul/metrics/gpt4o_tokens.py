"""GPT-4o's tokens (`o200k_base`), which MirrorBench's lexical measures count.

The package bpe-openai carries the vocabulary and needs no network. Without it, tiktoken reads the vocabulary from its
cache folder (TIKTOKEN_CACHE_DIR), or downloads it once (3.6 MB). Both give the same tokens. Nothing replaces them if
neither is there: a measure over other tokens is another measure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from soul.errors import SoulError, one_line

NAME = "o200k_base"


class MissingTokens(SoulError):
    """The vocabulary of GPT-4o's tokens is not there and cannot be downloaded."""


def gpt4o_tokens(text: str) -> list[int]:
    """The tokens of a text. Control tokens in it are ordinary text, and half a surrogate is a replacement character.

    Raises:
        MissingTokens: there is no vocabulary; the message says what to do.
    """
    return _encode()(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


@cache
def _encode() -> Callable[[str], list[int]]:
    try:
        package = import_module("bpe_openai" if find_spec("bpe_openai") else "tiktoken")
        encoding = package.get_encoding(NAME)
    except (ImportError, OSError, ValueError) as error:  # a failed download is an OSError
        raise MissingTokens(
            f"MirrorBench's lexical measures count GPT-4o's tokens ({NAME}), and their vocabulary could not be loaded: "
            f"{one_line(error, 200)}. Without a network, install it (pip install bpe-openai), or set "
            "TIKTOKEN_CACHE_DIR to a folder that tiktoken has filled on another machine. Or leave these measures out "
            "(tasks.mirrorbench.lexical=false): the reward is then the mean of the three judgments."
        ) from error
    return lambda text: list(encoding.encode(text, disallowed_special=()))
