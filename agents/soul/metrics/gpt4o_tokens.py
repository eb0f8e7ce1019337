"""GPT-4o's tokens (`o200k_base`), which MirrorBench's lexical measures count.

The package bpe-openai carries the vocabulary; tiktoken, which gives the same tokens, would download it.
"""

from __future__ import annotations

from functools import cache
from typing import Any


def gpt4o_tokens(text: str) -> list[int]:
    """The tokens of a text. Control tokens in it are ordinary text, and half a surrogate is a replacement character."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return list(_encoding().encode(whole, disallowed_special=()))


@cache
def _encoding() -> Any:
    import bpe_openai  # here, because to load the vocabulary takes time that only MirrorBench needs

    return bpe_openai.get_encoding("o200k_base")
