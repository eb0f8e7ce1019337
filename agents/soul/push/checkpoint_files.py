"""Which files of a checkpoint are uploaded: model, tokenizer, adapter and card, not the state of the training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from soul.errors import SoulError
from soul.evaluate.run.checkpoint import latest_checkpoint
from soul.evaluate.run.weights import damage
from soul.files.json_object import read_object
from soul.push.keys import like_keys

CARD = "README.md"
ADAPTER = "lora_adapter"
# What a run needs to resume, and nobody else needs: optimizer, shards, the data's position, the list of files.
_STATE = ("actor", "data.pt", "manifest.json", "transfer_queue")


class NotPushable(SoulError):
    """A folder is no model, or holds something that must not be published."""


@dataclass(frozen=True)
class Upload:
    """What is uploaded.

    Attributes:
        files: their paths in the folder.
        left_out: entries of the folder that stay here.
        remarks: sentences for the user.
    """

    folder: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return sum((self.folder / name).stat().st_size for name in self.files)


def checkpoint_upload(path: Path) -> Upload:
    """The upload of a checkpoint, a model folder, an adapter, or the latest checkpoint of a run.

    Raises:
        NotPushable: it has no whole weights, or a file looks like a key.
        BadCheckpoint: the run's latest checkpoint is missing.
    """
    folder = latest_checkpoint(path)
    _require_weights(folder)
    entries = sorted(entry.name for entry in folder.iterdir())
    left_out = tuple(name for name in entries if name in _STATE or name.startswith("."))
    files = tuple(
        file.relative_to(folder).as_posix()
        for name in entries
        if name not in left_out
        for file in ([folder / name] if (folder / name).is_file() else sorted((folder / name).rglob("*")))
        if file.is_file()
    )
    if keys := list(like_keys(folder, files)):
        raise NotPushable(
            f"{folder}: {', '.join(keys)}: this looks like a key or "
            "a password. Nothing was uploaded. Move it out of the folder."
        )
    return Upload(folder, files, left_out, tuple(_remarks(folder, files)))


def _require_weights(folder: Path) -> None:
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        hint = f" Name {folder / ADAPTER} to push its adapter." if (folder / ADAPTER).is_dir() else ""
        raise NotPushable(
            f"{folder} has neither config.json nor adapter_config.json, so it is no model. Name a global_step_N, the "
            f"folder of a run, or a model's folder.{hint}"
        )
    if problem := damage(folder):
        raise NotPushable(f"{folder}: {problem}")


def _remarks(folder: Path, files: tuple[str, ...]) -> Iterator[str]:
    if CARD not in files:
        yield f"There is no {CARD}: the page on the hub will be empty. Training writes one beside each checkpoint."
    elif "license:" not in (folder / CARD).read_text("utf-8", errors="replace").split("\n---", 1)[0]:
        yield f"{CARD} states no licence: add `license: ...` to its header."
    for name in files:
        if Path(name).name == "adapter_config.json":
            config = read_object(folder / name, NotPushable, "Export the adapter again.")
            base = str(config.get("base_model_name_or_path") or "")
            if base.startswith(("/", "~", ".")):
                yield f"{name} names a folder of this machine as its base model: write the base's hub id there."
