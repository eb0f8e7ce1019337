"""Tags such as <answer> and </answer> that a tokenizer marks as special: they are words of an answer all the same.

Decoding leaves special tokens out. Training keeps these tags (`rendering.py`), so a checkpoint lists them as ordinary
added tokens, and so does the copy of a tokenizer with which we serve a base model: every server then writes what
training read. Their ids and their places in a prompt stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from soul.files.whole_file import write_whole


def is_paired_tag(word: str, words: Collection[str]) -> bool:
    """True for a token of a pair such as <answer> and </answer>; False for <s> and </s>."""
    name = word.strip("</>")
    pair = {f"<{name}>", f"</{name}>"}
    return word in pair and name.isidentifier() and name != "s" and all(each in words for each in pair)


def special_tags(tokenizer: Any, stop_ids: Collection[int]) -> frozenset[str]:
    """The paired tags that a tokenizer marks as special, except tokens that end a turn."""
    special = {token.content: number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(
        word for word, number in special.items() if number not in stop_ids and is_paired_tag(word, special)
    )


def unmark(folder: Path, tags: Collection[str]) -> None:
    """Rewrite the files of a saved tokenizer so that these tags are not special."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = folder / name
        if not file.exists():
            continue
        saved = json.loads(file.read_text(encoding="utf-8"))
        for token in (*saved.get("added_tokens", ()), *saved.get("added_tokens_decoder", {}).values()):
            token["special"] = token["special"] and token["content"] not in tags
        if "extra_special_tokens" in saved:
            saved["extra_special_tokens"] = [word for word in saved["extra_special_tokens"] if word not in tags]
        write_whole(file, json.dumps(saved, ensure_ascii=False, indent=2))
