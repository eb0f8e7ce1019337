"""Recognise ParaToMi stories that paraphrase each other, by the people and places in each sentence.

A paraphrase changes verbs and word order ("stepped into", "arrived at") but keeps the order of the sentences and the
people, rooms and containers in each of them. So the key of a story is the sequence of these, plus the object that the
question asks about. ToMi draws rooms and containers from fixed lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CONTAINERS = (
    "basket bathtub bottle box bucket container crate cupboard drawer envelope pantry suitcase treasure_chest"
).split()
ROOMS = (
    "TV_room attic back_yard basement bathroom bedroom cellar closet crawlspace den dining_room front_yard garage "
    "garden hall hallway kitchen laundry living_room lounge master_bedroom office pantry patio playroom porch "
    "staircase study sunroom workshop"
).split()
# Longest first and whole words only: "master_bedroom" is not a bedroom. Percept-ToMi writes spaces for underscores.
_KINDS = "|".join(sorted({*CONTAINERS, *ROOMS}, key=len, reverse=True)).replace("_", "[_ ]")
# Stories in the style of Hi-ToM have coloured containers: a red_box and a blue_box are different places.
_PLACE = re.compile(rf"(?<![\w-])((?:[a-z]+_)?(?:{_KINDS}))(?![\w-])")
# ToMi's names are the only other capitalised words.
_NAME = re.compile(r"\b(?!(?:The|There|In|Inside|On|At|A|An|It|Where|TV)\b)[A-Z][a-z]+\b")
_OBJECT = re.compile(r"(?:\bfor|\bwas|\bis) the ([a-z_ -]+?)(?= at\b| in\b| really\b|\s*\?|\s*$)")


def places(story: Sequence[str]) -> list[str]:
    """The containers and rooms that a story names, in order of first mention, as the story writes them."""
    return list(dict.fromkeys(_PLACE.findall("\n".join(story))))


def story_key(story: Sequence[str], question: str) -> str:
    """A key that a story, its paraphrases and all questions about them share; the story's text if it names nobody."""
    text = "\n".join(story)
    match = _OBJECT.search(question)
    thing = match[1].replace(" ", "_") if match else ""
    # "Gloves lie in the crate": an object may begin a sentence.
    names = {name for name in _NAME.findall(text) if name.lower() not in {thing, *text.split()}}
    sentences = [", ".join(sorted(_named(sentence, names))) for sentence in story]
    return " | ".join(filter(None, [thing, *sentences])) if any(sentences) else " ".join(text.casefold().split())


def _named(sentence: str, names: set[str]) -> set[str]:
    """The people and places in a sentence, in one spelling: "dining_room" for "dining room"."""
    return names.intersection(re.findall(r"\w+", sentence)) | {place.replace(" ", "_") for place in places([sentence])}
