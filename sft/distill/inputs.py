"""The inputs of a step of distill.sh: models, rows, files, judges and settings, each with a fingerprint.

Models are identified by their files, as in an evaluation (`Checkpoint.fingerprint`); rows by their records, prompts and
the task's version (`stamp_of`), so that a file that was built again with the same rows is the same input.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sft.distill.experts import experts, split
from sft.distill.heldout import set_files
from soul.cli.redaction import redact_guessing
from soul.errors import BadSettings
from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.settings import gateway_identity, stamp_of
from soul.judge import GatewaySettings
from soul.judge.cli_overrides import sections_of
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


def of_experts(words: Sequence[str], train_files: Sequence[str], data_dir: Path, base: str | None) -> dict[str, str]:
    """The models and rows of TASK=EXPERT words; an endpoint is identified by its name and address.

    Raises:
        SoulError: as `experts` and `of_models`.
    """
    named = experts(words, train_files, data_dir)
    models = of_models((expert.name for expert in named if not expert.is_endpoint), base)
    rows = {f"rows of {name}": path for expert in named for name, path in expert.sets.items()}
    return {
        "experts": " ".join(words),
        **models,
        **{name: _rows_fingerprint([path]) for name, path in rows.items()},
    }


def of_sets(words: Iterable[str], data_dir: Path) -> dict[str, str]:
    """The rows of evaluation sets, files and globs.

    Raises:
        BadSettings: a word names neither a set nor a file. BadRow: a file cannot be read.
    """
    return {f"rows of the evaluation {word}": _rows_fingerprint(set_files(word, data_dir)) for word in words}


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """The contents of files."""
    return {f"file {path}": _file_fingerprint(path) if path.is_file() else ABSENT for path in paths}


def of_settings(words: Iterable[str]) -> dict[str, str]:
    """Settings of the form NAME=VALUE.

    Raises:
        BadSettings: a word has another form.
    """
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise BadSettings(f"--setting {word}: write NAME=VALUE.")
        settings[name] = value
    return settings


def of_command_line(words: Sequence[str]) -> dict[str, str]:
    """The arguments of distill.sh, and the judges that they and the environment name. Keys are in neither."""
    at = words.index("--") if "--" in words else len(words)
    _, settings = split([word for word in words[:at] if "=" in word])
    gateway = GatewaySettings.from_sections(
        {name: section for name, section in sections_of(settings, ["tasks"]).items() if name not in ("tasks", "policy")}
    )
    return {"command line": redact_guessing(shlex.join(words)), **of_judges(gateway)}


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


def _rows_fingerprint(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for row in read_rows([str(file) for file in files]):
        digest.update(f"{row.number}:{stamp_of(row)};".encode())
    return digest.hexdigest()[:16]


def _file_fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
