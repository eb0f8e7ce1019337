"""What a run's feedback is about: sentences that come again."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soul.pages.sessions import NoSession, Place, read_line

LATEST = 10_000  # sessions that are read
SENTENCES = 12  # that are shown
SHORTEST = 8  # characters of a sentence
# The latest sessions with feedback and both rewards (`soul.pages.sessions.places_of`).
WITH_FEEDBACK = f"""NOT f.live AND f.split = 'step' AND s.told IS NOT NULL AND draft IS NOT NULL AND refined IS NOT NULL
    ORDER BY s.id DESC LIMIT {LATEST}"""


def themes(traces: Path, places: Sequence[Place]) -> dict[str, Any]:
    """{"read": sessions, "sentences": [{"text", "ids": of the sessions}], the most frequent first}."""
    texts: dict[int, str] = {}
    for place in places:
        try:
            texts[place.id] = str(json.loads(read_line(traces, place)).get("feedback") or "")
        except (NoSession, ValueError):  # its step has been written again since; the next answer has the new rows
            continue
    sentences = defaultdict[str, set[int]](set)
    for id_, text in texts.items():
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
            if len(sentence.strip()) >= SHORTEST:
                sentences[sentence.strip()].add(id_)
    again = sorted((-len(ids), text) for text, ids in sentences.items() if len(ids) > 1)[:SENTENCES]
    listed = [{"text": text, "ids": sorted(sentences[text])} for _, text in again]
    return {"read": len(texts), "sentences": listed}
