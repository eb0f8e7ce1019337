"""A row of Sotopia: two people, their goals and secrets, and which of it each may read.

The texts have Sotopia's tags: `<extra_info>` and hints belong to the goal that contains them, and
`<p viewer="environment">` is only for the judge.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import field_validator, model_validator

from soul.leaks.quotations import runs
from soul.row_fields import Label, LowerCase
from soul.task_types import NotBlank, Row

Position = Literal["agent1", "agent2"]
POSITIONS: tuple[Position, ...] = get_args(Position)
Field = Literal["name", "background", "secret", "goal"]  # what a row says about each of the two people
FIELDS: tuple[Field, ...] = get_args(Field)

# By Sotopia's numeric code, from 0.
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
# Words that reveal nothing by themselves.
_FUNCTION_WORDS = frozenset(
    "a an the this that these those i you he she it we they me him her us them my your his its our their one who whom "
    "what which there here is are was were be been being am do does did has have had having will would shall should "
    "can could may might must not no nor once and or but if so as than then too very also just only of to in on at by "
    "for from with about into over under up down out off after before while when where how why because any some all "
    "both each other another more most such own same".split()
)
_BIG = 100  # dollars; a smaller number without a dollar sign could mean anything


class SotopiaRow(Row):
    """One encounter. A secret has its own field or comes at the end of the background ("Leo's secrets: ...")."""

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
    eval_position: Annotated[Position, LowerCase] = "agent1"  # the person that the policy plays
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
            secret = _SECRET.search(text) if isinstance(text, str) else None
            if secret and not record.get(f"{position}_secret"):
                record[f"{position}_secret"] = secret.group(1).strip()
                record[f"{position}_background"] = str(text)[: secret.start()].strip()
        return record

    @field_validator("relationship", mode="before")
    @classmethod
    def _in_words(cls, value: Any) -> Any:
        code = str(value).strip()
        if not re.fullmatch(r"-?\d+(\.0)?", code):
            return value
        number = int(float(code))
        if not 0 <= number < len(RELATIONSHIPS):
            raise ValueError(f"{code} is not one of Sotopia's codes, which are 0 to {len(RELATIONSHIPS) - 1}")
        return RELATIONSHIPS[number]

    @property
    def partner_position(self) -> Position:
        """The position of the partner."""
        return other_than(self.eval_position)

    @property
    def notes(self) -> list[str]:
        """The parts of the scenario that only the judge may read, such as which friend two strangers share."""
        parts = _FOR_SOME.findall(self.scenario)
        return [note.strip() for _, viewer, note in parts if viewer.lower() == "environment" and note.strip()]

    def of(self, position: Position, field: Field) -> str:
        """A field of one of the two people, as that person reads it."""
        return self.shown(str(getattr(self, f"{position}_{field}")), position)

    def shown(self, text: str, viewer: Position) -> str:
        """A text as one of the two reads it: without tags and without what others may read, with names for "Agent1"."""
        own = f"agent_{POSITIONS.index(viewer)}"
        text = _FOR_SOME.sub(lambda part: part.group(1) + part.group(3) if part.group(2).lower() == own else "", text)
        names = {"1": self.agent1_name, "2": self.agent2_name}
        return _AGENT.sub(lambda agent: names[agent.group(1)], _TAG.sub("", text)).strip()

    def hidden(self, known: str) -> Sequence[str]:
        """The texts that would reveal what the partner keeps private, and the judge's notes.

        These are the partner's secret and goal, runs of telling words in them, and the sums of money and names there.

        Args:
            known: everything that the policy reads. Text that occurs in it is not hidden.
        """
        secret, goal = self.of(self.partner_position, "secret"), self.of(self.partner_position, "goal")
        texts = [secret, *_runs(secret, 3), *_runs(secret, 2), goal, *_runs(goal, 4), *_LISTED_NAME.findall(goal)]
        words = f" {_plain(known)} "
        hidden = [text for text in texts if f" {_plain(text)} " not in words]
        # A name in a note may also be one of many in the policy's own list; the secret is which one it is.
        names = [name for note in self.notes if ":" in note for name in note.rpartition(":")[2].split(",")]
        hidden += [*_sums(goal, set(_amounts(known))), *self.notes, *names]
        return tuple(text for text in dict.fromkeys(text.strip(" .") for text in hidden) if text)


def other_than(position: Position) -> Position:
    """The other position."""
    return "agent2" if position == "agent1" else "agent1"


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


def _runs(text: str, length: int) -> Iterator[str]:
    """Runs of `length` words, at least two of which are not function words."""
    for clause in _CLAUSE_END.split(text):
        for run in runs(clause.split(), length):
            if sum(_plain(word) not in _FUNCTION_WORDS for word in run) >= 2:
                yield " ".join(run)


def _amounts(text: str) -> dict[float, tuple[str, str]]:
    """Sums of money: value -> its dollars and its cents, as they are written."""
    sums = ((match.group(1).rstrip(","), match.group(2) or "") for match in _SUM.finditer(text))
    return {float(whole.replace(",", "") + cents): (whole, cents) for whole, cents in sums}


def _sums(text: str, known: set[float]) -> Iterator[str]:
    """The sums of money in a text that are not known, in the usual notations: "$610.00", "$610", "610"."""
    for value, (whole, cents) in _amounts(text).items():
        if value in known:
            continue
        ways = (f"{whole}{cents}", f"{value:.2f}", f"{value:,.2f}", whole, f"{int(value)}", f"{int(value):,}")
        for number in dict.fromkeys(ways):
            yield f"${number}"
            if value >= _BIG:
                yield number
