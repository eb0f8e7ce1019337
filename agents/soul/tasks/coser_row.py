"""The rows of CoSER: one scene of a book, its characters, and the book's own conversation as the reference.

CoSER's public files nest a scene in the object `circumstance`; here its fields are flat.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from typing import Annotated, Any

from pydantic import AliasChoices, Field, model_validator

from soul.row_fields import MARK, Label, RecordPart, as_list, without_nulls
from soul.task_types import NotBlank, Row
from soul.tasks.coser_stage import ENVIRONMENT, SpokenLine, same_name, without_thoughts

_OBJECTS = frozenset({"plot", "plot_characters", "key_characters", "character_profiles", "dialogues"})
_NAMES = frozenset({"speaking_characters_w_env", "major_characters"})
_SENTENCE_ENDS = re.compile(r"(?<=[.!?])(?=\s)|(?=\n)")

# The profiles as (character, sentence) pairs, in which the characters take turns.
Sentences = tuple[tuple[str, str], ...]


class Described(RecordPart):
    """A character of the plot."""

    name: NotBlank = Field(validation_alias=AliasChoices("name", "character"))
    description: str = ""


class Motivated(RecordPart):
    """A character of the scene, and what they want."""

    name: NotBlank = Field(validation_alias=AliasChoices("name", "character"))
    motivation: str = Field(default="", validation_alias=AliasChoices("motivation", "thought"))


class Utterance(RecordPart):
    """A line of the book's conversation, thoughts in square brackets included."""

    character: NotBlank = Field(validation_alias=AliasChoices("character", "name"))
    message: str


class CoSERRow(Row):
    """One scene ("circumstance") of a book.

    The source's nested record, as an object or as JSON: in the field `circumstance`, or field by field.
    """

    book: NotBlank
    scenario: NotBlank
    plot_summary: str = ""  # plot.summary
    plot_characters: tuple[Described, ...] = ()  # plot.key_characters
    key_characters: tuple[Motivated, ...] = ()
    character_profiles: dict[str, str] = {}
    dialogues: Annotated[tuple[Utterance, ...], Field(min_length=1)]  # the reference
    speaking_characters_w_env: tuple[NotBlank, ...] = ()  # absent in training data: then by number of lines
    major_characters: tuple[str, ...] = ()  # absent in training data: then those with a profile
    tag: Label = ""  # in the test set: "id" if the book is in the training data, else "ood"
    # The profiles as the prompts show them: these may be cut, while the judge sees the whole `character_profiles`.
    shown_profiles: Sentences = ()

    @model_validator(mode="before")
    @classmethod
    def _flattened(cls, record: Any) -> Any:
        if not isinstance(record, Mapping):
            return record
        outer = without_nulls(record)
        fields = {**_circumstance(outer.pop("circumstance", {})), **outer}
        fields = {key: _parsed(key, value) for key, value in fields.items()}
        plot = fields.pop("plot", None)
        if isinstance(plot, Mapping):
            renamed = {"plot_summary": plot.get("summary"), "plot_characters": plot.get("key_characters")}
            fields = {**without_nulls(renamed), **fields}
        if isinstance(fields.get("character_profiles"), Mapping):
            profiles = fields["character_profiles"] = without_nulls(fields["character_profiles"])
            sentences = _dealt({str(name): text for name, text in profiles.items() if isinstance(text, str)})
            fields = {"shown_profiles": sentences, **fields}
        return fields

    @property
    def speakers(self) -> tuple[str, ...]:
        """The speakers, in the order of the source; the first one opens the scene."""
        counts = Counter(line.character for line in self.dialogues)
        by_lines = sorted(counts, key=lambda name: -counts[name])
        names = self.speaking_characters_w_env or by_lines
        return tuple(dict.fromkeys(ENVIRONMENT if same_name(name) == "environment" else name for name in names))

    @property
    def cast(self) -> tuple[str, ...]:
        """The characters on stage: the seats of the policy."""
        return tuple(name for name in self.speakers if name != ENVIRONMENT)

    @property
    def majors(self) -> tuple[str, ...]:
        """The characters whose fidelity is judged."""
        major = self.major_characters or tuple(self.character_profiles)
        return tuple(name for name in self.cast if name in major)

    @property
    def reference(self) -> tuple[SpokenLine, ...]:
        """The book's own conversation, without thoughts."""
        lines = (
            SpokenLine(line.character, " ".join(without_thoughts(line.message).split())) for line in self.dialogues
        )
        return tuple(line for line in lines if line.text)

    def motivation(self, name: str) -> str:
        """What the character wants; "" if the source does not say."""
        return next((one.motivation.strip() for one in self.key_characters if one.name == name), "")

    def portrait(self, name: str, shown: bool = False) -> str:
        """The character's description and profile; with `shown`, the profile as the prompts show it."""
        profile = whole = self.character_profiles.get(name, "").strip()
        if shown:
            profile = "".join(text for who, text in self.shown_profiles if who == name).strip()
            profile += f" {MARK}" if profile and profile != whole else ""
        description = next((one.description.strip() for one in self.plot_characters if one.name == name), "")
        return "\n\n".join(text for text in (description, profile) if text)


def _circumstance(value: Any) -> dict[Any, Any]:
    scene = without_nulls(_json("circumstance", value))
    if not isinstance(scene, dict):
        raise ValueError("circumstance is not a JSON object")
    return scene


def _parsed(name: str, value: Any) -> Any:
    """A field's value, parsed if it is JSON text."""
    if name in _NAMES:
        return as_list(value)
    return _json(name, value) if name in _OBJECTS else value


def _json(name: str, value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError(f"{name} is not valid JSON") from None


def _dealt(profiles: Mapping[str, str]) -> Sentences:
    """The profiles' sentences: everybody's first, then everybody's second, so that a cut shortens the longest ones."""
    rows = [[(name, text) for text in _SENTENCE_ENDS.split(profile) if text] for name, profile in profiles.items()]
    return tuple(sentence for turn in zip_longest(*rows) for sentence in turn if sentence is not None)
