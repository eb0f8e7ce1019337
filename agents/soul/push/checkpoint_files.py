"""Which files of a checkpoint are uploaded: model, tokenizer, adapter and card, not the state of the training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from soul.evaluate.run.checkpoint import find_weight_problem, latest_checkpoint
from soul.files.json_object import read_object
from soul.push.upload import CARD, NotPushable, Upload

ADAPTER = "lora_adapter"
# What a run needs to resume, and nobody else needs: optimizer, shards, the data's position, the list of files.
_STATE = ("actor", "data.pt", "manifest.json", "transfer_queue")


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
    upload = Upload("model", folder, files, left_out, tuple(_remarks(folder, files)))
    upload.check_keys()
    return upload


def _require_weights(folder: Path) -> None:
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        hint = f" Name {folder / ADAPTER} to push its adapter." if (folder / ADAPTER).is_dir() else ""
        raise NotPushable(
            f"{folder} has neither config.json nor adapter_config.json, so it is no model. Name a global_step_N, the "
            f"folder of a run, or a model's folder.{hint}"
        )
    if problem := find_weight_problem(folder):
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
