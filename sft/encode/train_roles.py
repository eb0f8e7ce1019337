"""The trained side of a conversation: rules by the name of the source. A source without a rule is an error.

`assistant`: the assistant's turns. `human`: the human's turns; user and assistant are swapped, so that the template
renders the human's words as the assistant's. The first of these that says something holds: the row's own `train_role`
column, the known sources (known_sources.py), `data.default_train_role`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sft.encode.known_sources import KNOWN_SOURCES, Role, known_names
from soul.errors import SoulError

UNNAMED = "unnamed"  # the source of rows without a data_source
_SHOWN = 5


class UnknownSource(SoulError):
    """No rule says which side of a source is trained; the message names the file, the source and how to say it."""


@dataclass(frozen=True)
class SourceRule:
    """The training of the rows of a source.

    Attributes:
        role: the trained side.
        origin: what says so, for the plan.
        last_turns: how many of the last turns stay turns; 0: all.
        empty_system: rows without a system message get an empty one.
    """

    role: Role
    origin: str
    last_turns: int = 0
    empty_system: bool = False


@dataclass(frozen=True)
class RoleRules:
    """The rules of a run.

    Attributes:
        default: data.default_train_role; None: a source that nothing names is an error.
        last_turns_by_source: data.last_turns_by_source.
    """

    default: Role | None = None
    last_turns_by_source: Mapping[str, int] = field(default_factory=dict)

    def rule(self, source: str, file: str) -> SourceRule:
        """The rule for a source's rows that have no `train_role` of their own.

        Args:
            file: where the source occurs, for the error.

        Raises:
            UnknownSource: nothing names the source, two known names in it disagree, or a known name in it disagrees
                with the default.
        """
        names = known_names(source)
        roles = {KNOWN_SOURCES[name].role for name in (*names[:1], *sorted(names, key=len)[-1:])}
        known = KNOWN_SOURCES[names[0]] if len(roles) == 1 else None
        if known and source not in KNOWN_SOURCES and self.default not in (None, known.role):
            raise UnknownSource(_unknown({source: file}, self.default))
        elif known:
            role, origin = known.role, "known source" if source in KNOWN_SOURCES else f"like {names[0]}"
        elif self.default:
            role, origin = self.default, "data.default_train_role"
        else:
            raise UnknownSource(_unknown({source: file}, None))
        last_turns = self.last_turns_by_source.get(source, known.last_turns if known else 0)
        return SourceRule(role, origin, last_turns, bool(known and known.empty_system and role == "assistant"))

    def row_rule(self, role: Role, source: str) -> SourceRule:
        """The rule for a row with its own `train_role`: its messages stay as they are, unless the run folds them."""
        return SourceRule(role, "train_role column", self.last_turns_by_source.get(source, 0))

    def check(self, sources: Iterable[tuple[str, str]]) -> None:
        """Check that there is a rule for all sources, given with the file in which each occurs.

        Raises:
            UnknownSource: names those without.
        """
        unknown: dict[str, str] = {}
        for source, file in sources:
            try:
                self.rule(source, file)
            except UnknownSource:
                unknown.setdefault(source, file)
        if unknown:
            raise UnknownSource(_unknown(unknown, self.default))


def source_of(value: object) -> str:
    """The source of a row by its value of `data_source`."""
    return str(value) if value else UNNAMED


def _unknown(files: Mapping[str, str], default: Role | None) -> str:
    """Say what is unknown and what to do; `files` maps each source to a file in which it occurs."""
    source, file = next(iter(files.items()))
    others = [f"{other!r} in {place}" for other, place in list(files.items())[1:_SHOWN]]
    more = f", and {len(files) - _SHOWN:,} others" if len(files) > _SHOWN else ""
    also = f" The same holds for {', '.join(others)}{more}." if others else ""
    names = known_names(source)
    why = "no rule says which side of it is trained"
    if names:
        sides = ", ".join(f"{name} ({KNOWN_SOURCES[name].role})" for name in names)
        why = f"its name contains known sources that train different sides: {sides}"
        if default and len({KNOWN_SOURCES[name].role for name in names}) == 1:
            why = f"its name contains a known source ({sides}), but data.default_train_role={default}"
    called = "rows without a data_source" if source == UNNAMED else f"source {source!r}"
    return (
        f"{file}: {called}: {why}.{also} Give its rows a column train_role: assistant, or human to train the person's "
        "turns (soul convert FILES --train-role human). data.default_train_role=assistant holds for all sources that "
        "nothing names."
    )
