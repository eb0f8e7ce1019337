"""The files of a checkpoint that each rank writes, by their names: `actor/optim_world_size_8_rank_0.pt`."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"(?P<kind>.+)_world_size_(?P<ranks>\d+)_rank_(?P<rank>\d+)\.pt")


def rank_file(actor: Path, kind: str, ranks: int, rank: int) -> Path:
    """The file of one rank.

    Args:
        kind: model, optim, extra_state or teacher.
        ranks: the number of ranks that wrote the checkpoint.
    """
    return actor / f"{kind}_world_size_{ranks}_rank_{rank}.pt"


def rank_files(actor: Path, kind: str, ranks: int) -> list[Path]:
    """The files of all ranks, whether they are there or not."""
    return [rank_file(actor, kind, ranks, rank) for rank in range(ranks)]


def present_kinds(actor: Path) -> set[tuple[str, int]]:
    """The kinds of files in a checkpoint, each with the number of ranks in the names of its files."""
    matches = (_NAME.fullmatch(path.name) for path in actor.glob("*.pt"))
    return {(match["kind"], int(match["ranks"])) for match in matches if match}


def missing(actor: Path) -> list[Path]:
    """The files that a checkpoint should have by the number of ranks in the names of the others, and has not."""
    kinds = sorted(present_kinds(actor))
    return [file for kind, ranks in kinds for file in rank_files(actor, kind, ranks) if not file.is_file()]


def writers(actor: Path) -> int | None:
    """The number of ranks that wrote a checkpoint; None if no rank's model is there."""
    return max((ranks for kind, ranks in present_kinds(actor) if kind == "model"), default=None)
