"""Checkpoints that a crash cannot spoil, and that are model paths.

verl writes a checkpoint file by file into its final folder. Here it is written beside, completed with the model in
Hugging Face form (LoRA merged, the adapter beside it), flushed, and renamed in one step; the tracker file that resume
reads is replaced last. At any moment the tracker names a complete folder.

    <run>/global_step_7/                   config.json, tokenizer, model.safetensors: a model path
    <run>/global_step_7/lora_adapter/      the adapter alone (LoRA runs)
    <run>/global_step_7/actor/, data.pt    verl's own state: shards, optimizer, RNG, dataloader
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

TRACKER = "latest_checkpointed_iteration.txt"
PARTIAL = ".partial"
_STEP = re.compile(r"global_step_(\d+)$")


def partial_dir(root: Path) -> Path:
    """An empty folder for the checkpoint that is being written; what an earlier crash left there is removed."""
    folder = root / PARTIAL
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def publish(root: Path, step: int) -> Path:
    """Make the checkpoint in the partial folder the latest one.

    Returns:
        `<root>/global_step_<step>`.
    """
    written, final = root / PARTIAL / f"global_step_{step}", root / f"global_step_{step}"
    _flush(written)
    if final.exists():  # a step that was repeated after a resume, or an older run in this folder
        _forget(root, step)
        _remove(root, final)
    os.rename(written, final)
    tracker = root / f"{TRACKER}{PARTIAL}"
    tracker.write_text(str(step))
    _flush(tracker)
    os.replace(tracker, root / TRACKER)
    _flush_folder(root)
    shutil.rmtree(root / PARTIAL, ignore_errors=True)
    return final


def prune(root: Path, keep: int | None) -> None:
    """Remove all but the newest `keep` checkpoints (None or 0: keep all); never the one that the tracker names."""
    if not keep:
        return
    tracked = _tracked(root)
    for step in saved_steps(root)[:-keep]:
        if step != tracked:
            _remove(root, root / f"global_step_{step}")
    shutil.rmtree(root / PARTIAL, ignore_errors=True)


def _remove(root: Path, folder: Path) -> None:
    """Remove a checkpoint: it leaves its place in one step, so no half of it is ever taken for a whole."""
    grave = root / PARTIAL / f"removed_{folder.name}"
    grave.parent.mkdir(exist_ok=True)
    os.rename(folder, grave)
    shutil.rmtree(grave)


def _tracked(root: Path) -> int | None:
    path = root / TRACKER
    return int(path.read_text()) if path.exists() else None


def _forget(root: Path, step: int) -> None:
    """Let the tracker name another complete checkpoint before this one is replaced; remove it where there is none."""
    if _tracked(root) != step:
        return
    others = [s for s in saved_steps(root) if s != step]
    if not others:
        (root / TRACKER).unlink()
        return
    tracker = root / f"{TRACKER}{PARTIAL}"
    tracker.write_text(str(others[-1]))
    _flush(tracker)
    os.replace(tracker, root / TRACKER)


def saved_steps(root: Path) -> list[int]:
    """The steps of the complete checkpoints in the folder, ascending."""
    if not root.exists():
        return []
    return sorted(int(m.group(1)) for path in root.iterdir() if (m := _STEP.search(path.name)))


def _flush(path: Path) -> None:
    """fsync a file, or a folder with everything in it."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    for file in files:
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
