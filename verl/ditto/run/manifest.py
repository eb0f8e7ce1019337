"""A checkpoint's list of files, with which a later start checks that the checkpoint is complete.

    global_step_7/manifest.json    {"schema": 1, "id": "5f1c...", "files": {"actor/optim_....pt": {"bytes": 4096}, ...}}

Each write gets a new id, so two attempts at one step can be told apart. Small files have a SHA-256 hash, large ones
only their size, because hashing the shards of a large model takes minutes. The manifest is written last, before the
checkpoint is published.
"""

import hashlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

from soul.errors import SoulError

FILE = "manifest.json"
SCHEMA = 1
HASHED_BYTES = 16 * 2**20  # files up to this size are hashed
_RANK_FILE = re.compile(r"(?P<kind>.+)_world_size_(?P<ranks>\d+)_rank_(?P<rank>\d+)\.pt")


class DamagedCheckpoint(SoulError):
    """A checkpoint is not as it was written: a file is missing, incomplete or changed."""


def require_ranks(folder: Path) -> None:
    """Check that a checkpoint has the files of all ranks, by the number of ranks in the names of those that it has."""
    actor = folder / "actor"
    expected = [file for kind, ranks in sorted(present_kinds(actor)) for file in rank_files(actor, kind, ranks)]
    if missing := [file for file in expected if not file.is_file()]:
        more = f" and {len(missing) - 1} more files" if len(missing) > 1 else ""
        raise DamagedCheckpoint(
            f"{folder} lacks actor/{missing[0].name}{more}. Where the training runs on several nodes, its folder "
            "(OUTPUT_DIR) must be on a disk that all of them share."
        )


def write(folder: Path) -> None:
    """Write the manifest of a complete checkpoint, as its last file. Raises DamagedCheckpoint."""
    require_ranks(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / FILE)
    entries = {path.relative_to(folder).as_posix(): _entry(path) for path in files}
    content = {"schema": SCHEMA, "id": uuid.uuid4().hex, "files": entries}
    (folder / FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def check(folder: Path) -> None:
    """Compare a checkpoint with its manifest. Raises DamagedCheckpoint."""
    require_ranks(folder)
    try:
        entries = json.loads((folder / FILE).read_text(encoding="utf-8"))["files"]
        expected = {str(name): (int(entry["bytes"]), entry.get("sha256")) for name, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{folder / FILE} cannot be read ({error})") from None
    for name, (size, sha256) in expected.items():
        file = folder / name
        if not file.is_file():
            raise DamagedCheckpoint(f"{folder} lacks {name}")
        if (actual := file.stat().st_size) != size:
            raise DamagedCheckpoint(f"{file} has {actual:,} bytes instead of {size:,}")
        if sha256 is not None and sha256_of(file) != sha256:
            raise DamagedCheckpoint(f"{file} has another content than was written")


def _entry(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"bytes": size} | ({"sha256": sha256_of(path)} if size <= HASHED_BYTES else {})


def sha256_of(path: Path) -> str:
    """The SHA-256 hash of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rank_file(actor: Path, kind: str, ranks: int, rank: int) -> Path:
    """The file of one of `ranks` ranks; its kind is model, optim, extra_state or teacher."""
    return actor / f"{kind}_world_size_{ranks}_rank_{rank}.pt"


def rank_files(actor: Path, kind: str, ranks: int) -> list[Path]:
    """The files of all ranks, whether they are there or not."""
    return [rank_file(actor, kind, ranks, rank) for rank in range(ranks)]


def present_kinds(actor: Path) -> set[tuple[str, int]]:
    """The kinds of files in a checkpoint, each with the number of ranks in the names of its files."""
    matches = (_RANK_FILE.fullmatch(path.name) for path in actor.glob("*.pt"))
    return {(match["kind"], int(match["ranks"])) for match in matches if match}


def writers(actor: Path) -> int | None:
    """The number of ranks that wrote a checkpoint; None if no rank's model is there."""
    return max((ranks for kind, ranks in present_kinds(actor) if kind == "model"), default=None)
