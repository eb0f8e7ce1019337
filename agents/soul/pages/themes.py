"""What a run's feedback is about: sentences that come again, and words that occur together."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.metrics.lexical import FUNCTION_WORDS
from soul.pages.sessions import NoSession, Place, read_line

LATEST = 10_000  # sessions that are read
SENTENCES, THEMES, WORDS = 12, 8, 5  # that are shown; words of a theme
SHORTEST = 8  # characters of a sentence
COMMON = 0.6  # share of the texts from which on a word is no theme
# The latest sessions with feedback and both rewards (`soul.pages.sessions.places_of`).
WITH_FEEDBACK = f"""NOT f.live AND f.split = 'step' AND s.told IS NOT NULL AND draft IS NOT NULL AND refined IS NOT NULL
    ORDER BY s.id DESC LIMIT {LATEST}"""
_STOP = FUNCTION_WORDS | {"like", "withheld"}


def themes(traces: Path, places: Sequence[Place]) -> dict[str, Any]:
    """{"read": sessions, "sentences" and "themes": [{"text", "ids": of the sessions}], the most frequent first}."""
    texts: dict[int, str] = {}
    for place in places:
        try:
            texts[place.id] = str(json.loads(read_line(traces, place)).get("feedback") or "")
        except (NoSession, ValueError):  # its step has been written again since; the next answer has the new rows
            continue
    sentences, words = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for id_, text in texts.items():
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
            if len(sentence.strip()) >= SHORTEST:
                sentences[sentence.strip()].add(id_)
        for word in re.findall(r"[^\W\d_]{4,}", text.lower()):
            words[word].add(id_)
    again = sorted((-len(ids), text) for text, ids in sentences.items() if len(ids) > 1)[:SENTENCES]
    return {
        "read": len(texts),
        "sentences": [{"text": text, "ids": sorted(sentences[text])} for _, text in again],
        "themes": _clusters({word: ids for word, ids in words.items() if word not in _STOP}, len(texts)),
    }


def _clusters(words: Mapping[str, set[int]], n: int) -> list[dict[str, Any]]:
    """Words of high weight (texts that have it, times log of their rarity), each with words of much the same texts."""
    free = {word: ids for word, ids in words.items() if 2 <= len(ids) <= COMMON * n}
    found: list[dict[str, Any]] = []
    while free and len(found) < THEMES:
        first = max(sorted(free), key=lambda word: len(free[word]) * math.log(n / len(free[word])))
        ids = free[first]
        along = {one: len(ids & own) / len(ids | own) for one, own in free.items()}
        near = sorted((one for one, share in along.items() if share >= 0.5), key=lambda one: (-along[one], one))
        names = [first, *(one for one in near if one != first)][:WORDS]
        found.append({"text": ", ".join(names), "ids": sorted(ids)})
        free = {word: own for word, own in free.items() if word not in near}
    return found
