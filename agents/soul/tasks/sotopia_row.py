"""A row of Sotopia: two people, their goals and secrets, and who may read what of it.

Texts carry Sotopia's tags: `<extra_info>` and hints belong to the goal they stand in, `<p viewer="environment">` is for
the judge alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import field_validator, model_validator

from soul.rows.parsing import Label
from soul.task import NotBlank, Row

Position = Literal["agent1", "agent2"]
POSITIONS: tuple[Position, ...] = get_args(Position)

# Sotopia's codes.
RELATIONSHIPS = (
    "strangers",
    "they know each other by name",
    "acquaintances",
    "friends",
    "in a romantic relationship",
    "family members",
)

_SECRET = re.compile(r"(?:^|(?<=\s))(?:[^\s:]+['\u2019]s?\s+)?secrets?\s*:\s*(.*)\Z", re.IGNORECASE | re.DOTALL)
_FOR_SOME = re.compile(r"( ?)<p\s+viewer=[\"']?([\w-]+)[\"']?\s*>(.*?)(?:</p>|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"</?(?:extra_info|strategy_hint|clarification_hint|secret_info|p)\b[^<>]*>", re.IGNORECASE)
_AGENT = re.compile(r"\b[Aa]gent ?([12])\b")
_CLAUSE_END = re.compile(r"[.,!?;:]+(?=\s|$)|[()\n]+")
_SUM = re.compile(r"\$\s?(\d[\d,]*)(\.\d+)?")
_LISTED_NAME = re.compile(r"^\s*([A-Z][\w'\u2019-]*(?: [A-Z][\w'\u2019-]*)?):\s+\w+:", re.MULTILINE)
_WORD = re.compile(r"[\w$]+(?:['\u2019.,]\w+)*")
# Words that tell nothing by themselves.
_FUNCTION_WORDS = frozenset(
    "a an the this that these those i you he she it we they me him her us them my your his its our their one who whom "
    "what which there here is are was were be been being am do does did has have had having will would shall should "
    "can could may might must not no nor once and or but if so as than then too very also just only of to in on at by "
    "for from with about into over under up down out off after before while when where how why because any some all "
    "both each other another more most such own same".split()
)
_BIG = 100  # dollars; a smaller number without its sign may be any number


class SotopiaRow(Row):
    """One encounter. A secret may stand in a field of its own or at the background's end ("Leo's secrets: ...")."""

    agent1_name: NotBlank
    agent2_name: NotBlank
    agent1_background: str = ""
    agent2_background: str = ""
    agent1_secret: str = ""
    agent2_secret: str = ""
    agent1_goal: NotBlank
    agent2_goal: NotBlank
    relationship: str = ""  # a text, or Sotopia's code from 0 to 5
    scenario: NotBlank
    eval_position: Position = "agent1"  # whom the policy plays
    env_id: Label = ""
    codename: Label = ""  # of the situation; its variants share it
    source: Label = ""  # of the environment: "craigslist_bargains", "social_iqa", ...

    @model_validator(mode="before")
    @classmethod
    def _take_secrets_out(cls, record: Any) -> Any:
        if not isinstance(record, Mapping):
            return record
        record = dict(record)
        for position in POSITIONS:
            text = record.get(f"{position}_background")
            found = _SECRET.search(text) if isinstance(text, str) else None
            if found and not record.get(f"{position}_secret"):
                record[f"{position}_secret"] = found.group(1).strip()
                record[f"{position}_background"] = str(text)[: found.start()].strip()
        return record

    @field_validator("relationship", mode="before")
    @classmethod
    def _in_words(cls, value: Any) -> Any:
        code = str(value).strip()
        if not re.fullmatch(r"-?\d+(\.0)?", code):
            return value
        number = int(float(code))
        if not 0 <= number < len(RELATIONSHIPS):
            raise ValueError(f"{code} is no code of Sotopia's, which go from 0 to {len(RELATIONSHIPS) - 1}")
        return RELATIONSHIPS[number]

    @field_validator("eval_position", mode="before")
    @classmethod
    def _lower_case(cls, value: Any) -> Any:
        return value.strip().lower() if isinstance(value, str) else value

    @property
    def partner_position(self) -> Position:
        """Where the partner sits."""
        return other_than(self.eval_position)

    @property
    def notes(self) -> list[str]:
        """What the scenario holds for the judge alone: which friend two strangers have in common."""
        parts = _FOR_SOME.findall(self.scenario)
        return [note.strip() for _, viewer, note in parts if viewer.lower() == "environment" and note.strip()]

    def of(self, position: Position, field: Literal["name", "background", "secret", "goal"]) -> str:
        """A field of one of the two, as everybody reads it who may."""
        return self.shown(str(getattr(self, f"{position}_{field}")), position)

    def shown(self, text: str, viewer: Position) -> str:
        """A text as one of the two reads it: without tags and what is for others' eyes, with names for "Agent1"."""
        own = f"agent_{POSITIONS.index(viewer)}"
        text = _FOR_SOME.sub(lambda part: part.group(1) + part.group(3) if part.group(2).lower() == own else "", text)
        names = {"1": self.agent1_name, "2": self.agent2_name}
        return _AGENT.sub(lambda agent: names[agent.group(1)], _TAG.sub("", text)).strip()

    def hidden(self, known: str) -> Sequence[str]:
        """What would give away what the partner keeps to itself: its secret and goal, whole and in telling runs of
        words, sums of money and names that stand there; and the notes.

        Args:
            known: all that the policy reads. What stands there is not hidden.
        """
        secret, goal = self.of(self.partner_position, "secret"), self.of(self.partner_position, "goal")
        texts = [secret, *_runs(secret, 3), *_runs(secret, 2), goal, *_runs(goal, 4), *_LISTED_NAME.findall(goal)]
        words = f" {_plain(known)} "
        hidden = [text for text in texts if f" {_plain(text)} " not in words]
        # A name in a note may stand among others in the policy's own list. That it is this one is what is hidden.
        names = [name for note in self.notes if ":" in note for name in note.rpartition(":")[2].split(",")]
        found = [*hidden, *_sums(goal, set(_amounts(known))), *self.notes, *names]
        return tuple(text for text in dict.fromkeys(text.strip(" .") for text in found) if text)


def other_than(position: Position) -> Position:
    """The other position."""
    return "agent2" if position == "agent1" else "agent1"


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def _runs(text: str, length: int) -> Iterator[str]:
    """Runs of so many words, at least two of which tell something."""
    for clause in _CLAUSE_END.split(text):
        words = clause.split()
        for start in range(len(words) - length + 1):
            run = words[start : start + length]
            if sum(_plain(word) not in _FUNCTION_WORDS for word in run) >= 2:
                yield " ".join(run)


def _amounts(text: str) -> dict[float, tuple[str, str]]:
    """Sums of money: value -> its dollars and its cents as they are written."""
    found = ((match.group(1).rstrip(","), match.group(2) or "") for match in _SUM.finditer(text))
    return {float(whole.replace(",", "") + cents): (whole, cents) for whole, cents in found}


def _sums(text: str, known: set[float]) -> Iterator[str]:
    """The sums of money in a text that are not known, in the ways people write them: "$610.00", "$610", "610"."""
    for value, (whole, cents) in _amounts(text).items():
        if value in known:
            continue
        ways = (f"{whole}{cents}", f"{value:.2f}", f"{value:,.2f}", whole, f"{int(value)}", f"{int(value):,}")
        for number in dict.fromkeys(ways):
            yield f"${number}"
            if value >= _BIG:
                yield number
