"""The inputs of a step of distill.sh: models, rows, files and judges, each with a fingerprint.

Models are identified by their files, as in an evaluation (`Checkpoint.fingerprint`); rows by their records, prompts and
the task's version (`stamp_of`), so that a file that was built again with the same rows is the same input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.settings import gateway_identity, stamp_of
from soul.judge import GatewaySettings
from soul.rows.task_files import read_rows

ABSENT = "absent"


def of_models(paths: Iterable[str], base: str | None) -> dict[str, str]:
    """The fingerprints of checkpoints.

    Args:
        base: the base model of LoRA adapters that name none.

    Raises:
        BadCheckpoint: a path is not a model.
    """
    return {f"model {path}": Checkpoint.find(path, base).fingerprint for path in paths}


def of_rows(files: Mapping[str, Iterable[Path]]) -> dict[str, str]:
    """The rows of task files, by a name for each group of files.

    Raises:
        BadRow: a file cannot be read.
    """
    found = {}
    for name, paths in files.items():
        rows = (f"{row.number}:{stamp_of(row)};".encode() for row in read_rows([str(path) for path in paths]))
        found[f"rows of {name}"] = hashlib.sha256(b"".join(rows)).hexdigest()[:16]
    return found


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """The contents of files; they may be absent."""
    return {f"file {path}": _digest(path) if path.is_file() else ABSENT for path in paths}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def of_judges(gateway: GatewaySettings) -> dict[str, str]:
    """The settings of judges and partners that determine what they say: roles.judge.model -> "gpt-5-nano"."""
    return dict(_flat("", gateway_identity(gateway)))


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    """The leaves of nested mappings: roles.judge.model -> gpt-5-nano."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), below)
    else:
        yield name, json.dumps(value)
