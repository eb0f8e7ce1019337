"""A checkpoint's list of files, with which a later start checks that the checkpoint is complete.

    global_step_7/manifest.json    {"schema": 1, "id": "5f1c...", "files": {"actor/optim_....pt": {"bytes": 4096}, ...}}

Each write gets a new id, so two attempts at one step can be told apart. Small files have a SHA-256 hash, large ones
only their size, because hashing the shards of a large model takes minutes. The manifest is written last, before the
checkpoint is published.

Checkpoints written before this project had manifests have none. They count as complete if every rank has its shards and
no tensor file is truncated.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
import zipfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from soul.errors import SoulError

logger = logging.getLogger(__name__)

FILE = "manifest.json"
_RANK_FILE = re.compile(r"(?P<kind>.+)_world_size_(?P<ranks>\d+)_rank_(?P<rank>\d+)\.pt")
CARD = "README.md"  # people edit the model card (`model_card.py`), so a change to it damages no checkpoint
SCHEMA = 1
HASHED_BYTES = 16 * 2**20  # files up to this size are hashed


class DamagedCheckpoint(SoulError):
    """A checkpoint is not as it was written: a file is missing, incomplete or changed."""


def require_ranks(folder: Path) -> None:
    """Check that the files of all ranks are in a checkpoint.

    Raises:
        DamagedCheckpoint: some are missing.
    """
    if missing := missing_files(folder / "actor"):
        more = f" and {len(missing) - 1} more files" if len(missing) > 1 else ""
        raise DamagedCheckpoint(
            f"{folder} lacks actor/{missing[0].name}{more}. Where the training runs on several nodes, its folder "
            "(OUTPUT_DIR) must be on a disk that all of them share."
        )


def write(folder: Path) -> None:
    """Write the manifest of a complete checkpoint, as its last file.

    Raises:
        DamagedCheckpoint: the file of a rank is missing.
    """
    require_ranks(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / FILE and path.name != CARD)
    entries = {path.relative_to(folder).as_posix(): _entry(path) for path in files}
    content = {"schema": SCHEMA, "id": uuid.uuid4().hex, "files": entries}
    (folder / FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")


def check(folder: Path) -> None:
    """Compare a checkpoint with its manifest.

    Raises:
        DamagedCheckpoint: for the first file that is missing or has another size or hash.
    """
    path = folder / FILE
    require_ranks(folder)
    if not path.exists():
        _check_shape(folder)
        logger.warning("%s has no %s (an older version wrote it): checked only that no file is truncated", folder, FILE)
        return
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["files"]
        expected = {str(name): (int(entry["bytes"]), entry.get("sha256")) for name, entry in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{path} cannot be read ({error})") from None
    for name, (size, sha256) in expected.items():
        file = folder / name
        if not file.is_file():
            raise DamagedCheckpoint(f"{folder} lacks {name}")
        actual = file.stat().st_size
        if actual != size:
            raise DamagedCheckpoint(f"{file} has {actual:,} bytes instead of {size:,}")
        if sha256 is not None and sha256_of(file) != sha256:
            raise DamagedCheckpoint(f"{file} has another content than was written")


def total_bytes(folder: Path) -> int:
    """The size of a checkpoint in bytes, from its manifest."""
    entries = json.loads((folder / FILE).read_text(encoding="utf-8"))["files"]
    return sum(int(entry["bytes"]) for entry in entries.values())


def _check_shape(folder: Path) -> None:
    """Check a checkpoint without a manifest: it has shards, and no tensor file is truncated.

    Raises:
        DamagedCheckpoint: for the first file that is missing or incomplete.
    """
    if not present_kinds(folder / "actor"):
        raise DamagedCheckpoint(f"{folder} has no {FILE} and no shards under actor/")
    for file in folder.rglob("*.pt"):
        if not zipfile.is_zipfile(file):  # torch.save writes a zip, whose table of contents is at the end
            raise DamagedCheckpoint(f"{file} is incomplete ({file.stat().st_size:,} bytes)")
    for file in folder.rglob("*.safetensors"):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise DamagedCheckpoint(f"{file} is incomplete ({error})") from None


def _entry(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"bytes": size} | ({"sha256": sha256_of(path)} if size <= HASHED_BYTES else {})


def sha256_of(path: Path) -> str:
    """The SHA-256 hash of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    matches = (_RANK_FILE.fullmatch(path.name) for path in actor.glob("*.pt"))
    return {(match["kind"], int(match["ranks"])) for match in matches if match}


def missing_files(actor: Path) -> list[Path]:
    """The files that a checkpoint should have by the number of ranks in the names of the others, and has not."""
    kinds = sorted(present_kinds(actor))
    return [file for kind, ranks in kinds for file in rank_files(actor, kind, ranks) if not file.is_file()]


def writers(actor: Path) -> int | None:
    """The number of ranks that wrote a checkpoint; None if no rank's model is there."""
    return max((ranks for kind, ranks in present_kinds(actor) if kind == "model"), default=None)
