"""Rows of CoSER, and the stage of a scene: what others hear of a turn, what each participant knows, who may speak next.

A row is one scene of a book, its characters, and the book's own conversation as the reference. CoSER's public files
nest a scene in the object `circumstance`; here its fields are flat.

A turn is `[thought] speech (action)`. Thoughts are private: the other characters, the narrator, the next-speaker
predictor and the judge do not see them.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, Any

from pydantic import AliasChoices, Field, model_validator

from soul.answers.thinking import without_thinking
from soul.dialogue import View
from soul.judge.call.untrusted import neutral
from soul.message import Message
from soul.row_fields import MARK, Label, RecordPart, as_list, nested_object, without_nulls
from soul.task_types import Episode, NotBlank, Row

ENVIRONMENT = "Environment"
END = "<END CHAT>"
SILENCE = "(says nothing)"
NO_CHANGE = "(Nothing changes.)"
OPENING = "(The scene opens, and the first turn is yours.)"
# The instructions ask for 60 words at most. A turn far beyond that must not fill everybody else's prompts.
HEARD_WORDS = 200

_BRACKETS = re.compile(r"([\[\]])")


@dataclass(frozen=True)
class SpokenLine:
    """One turn as the others hear it; `text` is "" if nothing was said or done."""

    speaker: str
    text: str

    def __str__(self) -> str:
        return f"{self.speaker}: {self.text or (NO_CHANGE if self.speaker == ENVIRONMENT else SILENCE)}"


@dataclass(frozen=True)
class Scene(Episode):
    """An episode of CoSER: `seats` has what each character's seat saw, `lines` what was heard on stage."""

    lines: tuple[SpokenLine, ...] = ()

    @property
    def answer(self) -> str:
        """The last turn of a character; "" if only the narrator spoke."""
        speaker = next((line.speaker for line in reversed(self.lines) if line.speaker != ENVIRONMENT), None)
        messages = self.seats[speaker] if speaker is not None else ()
        return next((message["content"] for message in reversed(messages) if message["role"] == "assistant"), "")

    @property
    def turns(self) -> int:
        """The number of turns that the characters had, without the narrator's."""
        return len(character_lines(self.lines))


def character_lines(lines: Sequence[SpokenLine]) -> list[SpokenLine]:
    """The turns of the characters, without the narrator's."""
    return [line for line in lines if line.speaker != ENVIRONMENT]


def without_thoughts(text: str) -> str:
    """The text outside of square brackets.

    Unbalanced brackets are read as thoughts, because a private note must not get out: an unclosed bracket removes the
    rest of the text, a lone closing bracket removes what precedes it.
    """
    spoken: list[str] = []
    depth = 0
    for piece in _BRACKETS.split(text):
        if piece == "[":
            depth += 1
        elif piece == "]" and depth:
            depth -= 1
        elif piece == "]":
            spoken.pop()
        elif not depth:
            spoken.append(piece)
    return "".join(spoken)


def audible(turn: str, speaker: str, others: Sequence[str]) -> str:
    """Return what the others hear and see of a turn: no thinking, no thoughts, no name in front, no control tokens.

    The text is cut where the speaker starts to speak for somebody else, and after `HEARD_WORDS` words. "" is silence.
    """
    text = neutral(without_thoughts(without_thinking(turn)))
    text = _label((speaker,)).sub("", text)
    if others and (usurped := _label(others).search(text)):
        text = text[: usurped.start()]
    words = text.split()
    return " ".join(words[:HEARD_WORDS]) + (" ..." if len(words) > HEARD_WORDS else "")


def _label(names: Sequence[str]) -> re.Pattern[str]:
    """Matches the name of a speaker at the start of a line: "Jo March:", also in Markdown's bold face."""
    either = "|".join(re.escape(name) for name in names)
    return re.compile(rf"^[ \t>*_#]*(?:{either})[ \t*_]*:[ \t*_]*", re.MULTILINE | re.IGNORECASE)


class Part(View):
    """One participant's knowledge of the scene: instructions, then alternately what they heard and what they said."""

    def __init__(self, name: str, opening: Message, base: Message | None = None) -> None:
        super().__init__([opening], None if base is None else [base])
        self.name = name
        self._heard = 0  # lines of the scene

    def listen(self, lines: Sequence[SpokenLine]) -> None:
        """Add the lines since the last call, as one message."""
        news = [str(line) for line in lines[self._heard :] if line.speaker != self.name]
        self._heard = len(lines)
        self.hear("\n\n".join(news) or OPENING)


def same_name(name: str) -> str:
    """The form in which names are compared: case, spaces, quotes and Markdown do not matter."""
    return " ".join(name.split()).strip("\"'`*_<>.: ").casefold()


_OBJECTS = {"plot", "character_profiles"}
_LISTS = {"plot_characters", "key_characters", "dialogues", "speaking_characters_w_env", "major_characters"}
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
    def _flattened(cls, record: Mapping[str, Any]) -> Any:
        fields = {**nested_object(record, "circumstance"), **without_nulls(record)}
        fields |= {name: as_list(fields[name]) for name in _LISTS & fields.keys()}
        fields |= {name: nested_object(fields, name) for name in _OBJECTS & fields.keys()}
        plot, profiles = fields.pop("plot", {}), fields.get("character_profiles", {})
        renamed = {"plot_summary": plot.get("summary"), "plot_characters": plot.get("key_characters")}
        sentences = _dealt({str(name): text for name, text in profiles.items() if isinstance(text, str)})
        return {**without_nulls(renamed), "shown_profiles": sentences, **fields}

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
        """The character's aim; "" if the source does not say."""
        return next((one.motivation.strip() for one in self.key_characters if one.name == name), "")

    def portrait(self, name: str, shown: bool = False) -> str:
        """The character's description and profile; with `shown`, the profile as the prompts show it."""
        profile = whole = self.character_profiles.get(name, "").strip()
        if shown:
            profile = "".join(text for who, text in self.shown_profiles if who == name).strip()
            profile += f" {MARK}" if profile and profile != whole else ""
        description = next((one.description.strip() for one in self.plot_characters if one.name == name), "")
        return "\n\n".join(text for text in (description, profile) if text)


def _dealt(profiles: Mapping[str, str]) -> Sentences:
    """The profiles' sentences: everybody's first, then everybody's second, so that a cut shortens the longest ones."""
    rows = [[(name, text) for text in _SENTENCE_ENDS.split(profile) if text] for name, profile in profiles.items()]
    return tuple(sentence for turn in zip_longest(*rows) for sentence in turn if sentence is not None)
