"""Checkpoints that a crash cannot spoil, and that are model paths.

verl writes a checkpoint file by file into its final folder. Here it is written beside, completed with the model in
Hugging Face form (LoRA merged, the adapter beside it), listed in a manifest, flushed, and renamed in one step; the
tracker file is replaced last. At any moment the tracker names a complete folder.

    <run>/global_step_7/                   config.json, tokenizer, model.safetensors: a model path
    <run>/global_step_7/manifest.json      the checkpoint's files with sizes and hashes (`manifest.py`)
    <run>/global_step_7/lora_adapter/      the adapter alone (LoRA runs)
    <run>/global_step_7/actor/, data.pt    verl's own state: shards, optimizer, RNG, dataloader

A resume does not rely on the tracker: `newest_whole` looks at the folders themselves.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from ditto.run import manifest
from soul.files.whole_file import write_whole

logger = logging.getLogger(__name__)
TRACKER = "latest_checkpointed_iteration.txt"
PARTIAL = ".partial"
DAMAGED = ".damaged"
_STEP = re.compile(r"global_step_(\d+)")


class NoWholeCheckpoint(manifest.DamagedCheckpoint):
    """A run folder holds checkpoints, and training can resume from none of them."""


@dataclass(frozen=True)
class Choice:
    """Where a run resumes.

    Attributes:
        folder: the newest whole checkpoint; None where the folder holds no checkpoint, so training begins at step 1.
        left_aside: newer checkpoints that are damaged or missing, and why each cannot be used.
    """

    folder: Path | None
    left_aside: dict[Path, str]

    @property
    def step(self) -> int:
        """The step that the run goes on after; 0 for a new run."""
        return step_of(self.folder) if self.folder else 0


def step_of(folder: Path) -> int:
    """The step in a checkpoint folder's name."""
    return int(folder.name.removeprefix("global_step_"))


def newest_whole(root: Path) -> Choice:
    """Look for the newest checkpoint that is as it was written. Changes nothing.

    Raises:
        NoWholeCheckpoint: there are checkpoints, or a tracker that names one, and none is whole.
    """
    left_aside: dict[Path, str] = {}
    steps = saved_steps(root)
    tracker = root / TRACKER
    text = tracker.read_text(encoding="utf-8", errors="replace").strip() if tracker.exists() else None
    if text is not None and (not text.isdecimal() or int(text) not in steps):
        if text.isdecimal():
            left_aside[root / f"global_step_{int(text)}"] = f"{TRACKER} names it, and it is missing"
        else:
            left_aside[tracker] = f"it names no step: {text[:40]!r}"
    for step in reversed(steps):
        folder = root / f"global_step_{step}"
        try:
            manifest.check(folder)
        except manifest.DamagedCheckpoint as error:
            left_aside[folder] = str(error)
        else:
            return Choice(folder, left_aside)
    if not left_aside:
        return Choice(None, {})
    reasons = "; ".join(f"{path.name}: {reason}" for path, reason in left_aside.items())
    raise NoWholeCheckpoint(
        f"{root} holds a run, and none of its checkpoints is whole ({reasons}). Training does not start over an "
        "existing run. Put back a whole global_step_<N> from a copy, or begin a new run: set another EXPERIMENT_NAME, "
        f"or move {root} away."
    )


def set_aside(root: Path, choice: Choice) -> None:
    """Rename the damaged checkpoints to `global_step_<N>.damaged`, and let the tracker name the chosen one.

    A checkpoint of another run is not tracked: the tracker names a folder beside itself.

    Only the process that holds the run folder may call this, before training starts. Each one left aside is logged.
    """
    for path, reason in choice.left_aside.items():
        logger.warning("Left aside %s: %s", path, reason)
        if path.is_dir():
            os.rename(path, _unused(path.with_name(path.name + DAMAGED)))
    if choice.folder is not None and choice.folder.resolve().parent == root.resolve():
        _track(root, choice.step)


def _unused(path: Path) -> Path:
    """The path itself, or with a number behind it where it is taken."""
    number, free = 1, path
    while free.exists():
        number, free = number + 1, path.with_name(f"{path.name}.{number + 1}")
    return free


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
    manifest.write(written)
    _flush(written)
    os.rename(written, final)
    _track(root, step)
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
    text = path.read_text() if path.exists() else ""
    return int(text) if text.strip().isdecimal() else None


def _track(root: Path, step: int) -> None:
    """Let the tracker name a step."""
    write_whole(root / TRACKER, str(step))


def saved_steps(root: Path) -> list[int]:
    """The steps of the published checkpoints in the folder, ascending."""
    if not root.exists():
        return []
    return sorted(int(m.group(1)) for path in root.iterdir() if path.is_dir() and (m := _STEP.fullmatch(path.name)))


def resume_hint(root: Path) -> str:
    """The end of the message of a run that ended early: where the same command goes on."""
    steps = saved_steps(root)
    if not steps:
        return "There is no checkpoint yet: the same command begins again with step 1."
    return f"The last checkpoint is {root / f'global_step_{steps[-1]}'}; the same command goes on."


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
