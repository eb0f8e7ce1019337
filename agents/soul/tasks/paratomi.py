"""ParaToMi: paraphrased false-belief stories (Nematzadeh et al., 2018; Sclar et al., 2023).

One turn: a short answer in `<answer>`. It is right if it names the gold place as a whole word and no other candidate.

Two sets test it, and training shares no story with either. `paratomi` is Percept-ToMi: 600 questions about beliefs, in
ToMi's own wording, with candidates. `paratomi_paraphrased` is the paraphrased test that belongs to the training file:
6,004 questions, a third of them about reality or memory; it is in no suite, evaluate its file. The paper's number is
for 600 questions, so it is shown beside `paratomi`, but the paper also describes what only the other set has.

Stories that paraphrase each other are recognised by the people and places in each sentence: a paraphrase changes verbs
and word order, but neither those nor the order of the sentences. ToMi draws rooms and containers from fixed lists.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import field_validator

from soul.answers.extraction import folded_place, names_given, tagged_answer
from soul.one_turn import ExactTask
from soul.prompts import load_prompt
from soul.row_fields import Listed, drop_empty_groups
from soul.task_types import GroupKey, Metric, NotBlank, Row

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


PROMPT = load_prompt("paratomi/policy")


class ParaToMiRow(Row):
    """One question about one story."""

    story: Annotated[list[str], Listed]
    question: NotBlank
    cands: Annotated[list[str], Listed] = []
    correct_answer: NotBlank
    qType: str = ""

    @field_validator("story")
    @classmethod
    def _not_empty(cls, story: list[str]) -> list[str]:
        if not story:
            raise ValueError("contains no sentence")
        return story


class ParaToMi(ExactTask[ParaToMiRow]):
    """Where will Isla look for the banana?"""

    name = "paratomi"
    row_type = ParaToMiRow
    headline = Metric("accuracy", source="paper, section 4 (Theory of Mind) and table 1")
    critic = load_prompt("choice/critique_of_a_mind_reader", 3)

    def render(self, row: ParaToMiRow) -> str:
        story = "\n".join(sentence.strip() for sentence in row.story)
        candidates = f"\nPlaces to choose from: {', '.join(row.cands)}" if row.cands else ""
        return PROMPT.fill(story=story, question=row.question, candidates=candidates)

    def gold(self, row: ParaToMiRow) -> str:
        return row.correct_answer

    def check(self, row: ParaToMiRow) -> None:
        if row.cands and row.correct_answer not in row.cands:
            raise ValueError(f"correct_answer: {row.correct_answer!r} is not among the candidates {row.cands}")

    def secrets(self, row: ParaToMiRow) -> Sequence[str]:
        return (row.correct_answer, *row.cands)

    def group_keys(self, row: ParaToMiRow) -> Sequence[GroupKey]:
        return [GroupKey("story", story_key(row.story, row.question))]

    def groups(self, row: ParaToMiRow) -> Mapping[str, str]:
        # Drop the number of the agent: "first_order_0_no_tom" and "first_order_1_no_tom" are one type.
        return drop_empty_groups({"question": re.sub(r"_[01](?=_)", "", row.qType)})

    def read(self, row: ParaToMiRow, text: str, strict: bool) -> str | None:
        answer = tagged_answer(text)
        if answer is None:
            return None
        places = names_given(answer, {row.correct_answer, *row.cands}, strict=strict)
        if row.cands or (strict and places):
            return places.pop() if len(places) == 1 else None  # an answer that names two places does not say where
        # Only the right place is known, so the answer must be that place and nothing more.
        place = folded_place(answer)
        return row.correct_answer if place == folded_place(row.correct_answer) else place or None
