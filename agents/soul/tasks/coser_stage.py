"""The stage of a CoSER scene: what others hear of a turn, what each participant knows, and who may speak next.

A turn is `[thought] speech (action)`. Thoughts are private: the other characters, the narrator, the next-speaker
predictor and the judge do not see them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from soul.answers.thinking import without_thinking
from soul.dialogue import View
from soul.judge.call.untrusted import neutral
from soul.message import Message
from soul.task_types import Episode

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

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "lines": [asdict(line) for line in self.lines]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Scene:
        return cls(**{**value, "lines": tuple(SpokenLine(**line) for line in value["lines"])})

    @property
    def answer(self) -> str:
        """The last turn of a character; "" if only the narrator spoke."""
        speaker = next((line.speaker for line in reversed(self.lines) if line.speaker != ENVIRONMENT), None)
        messages = self.seats[speaker] if speaker is not None else ()
        return next((message["content"] for message in reversed(messages) if message["role"] == "assistant"), "")

    @property
    def turns(self) -> int:
        """The number of turns that the characters had, without the narrator's."""
        return character_turns(self.lines)


def character_turns(lines: Sequence[SpokenLine]) -> int:
    """The number of lines that are turns of characters and not of the narrator."""
    return sum(line.speaker != ENVIRONMENT for line in lines)


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
    """What the others hear and see of a turn: no thinking, no thoughts, no name in front, no control tokens.

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
    """What one participant knows of the scene: instructions, then alternately what they heard and what they said."""

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


def named(answer: str, candidates: Sequence[str]) -> str | None:
    """The candidate that an answer names; None unless the answer is exactly one candidate's name."""
    return next((name for name in candidates if same_name(name) == same_name(answer)), None)


def stand_in(candidates: Sequence[str], index: int, round_: int) -> str:
    """A random speaker if the predictor named no valid candidate; the same every time the row is played."""
    return random.Random(f"coser:{index}:{round_}").choice(list(candidates))
