"""Checkpoint folders: crash-safe, and loadable as a model path.

verl writes a checkpoint file by file into its final folder. Here it is written into a temporary folder, completed with
the model in Hugging Face format (LoRA merged, the adapter saved separately), listed in a manifest, flushed, and renamed
in one step; the tracker file is replaced last. So the tracker always names a complete folder.

    <run>/global_step_7/                   config.json, tokenizer, model.safetensors: a model path
    <run>/global_step_7/manifest.json      its files with sizes and hashes (`manifest.py`)
    <run>/global_step_7/lora_adapter/      the adapter without the model (LoRA runs)
    <run>/global_step_7/actor/, data.pt    verl's own state: shards, optimizer, RNG, dataloader

A resume does not rely on the tracker: `newest_complete` checks the folders themselves.
"""

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
STEP = re.compile(r"global_step_(\d+)")


class NoCompleteCheckpoint(manifest.DamagedCheckpoint):
    """A run folder holds checkpoints, but training can resume from none of them."""


@dataclass(frozen=True)
class ResumeChoice:
    """The checkpoint that a run resumes from."""

    folder: Path | None  # None: there is no checkpoint, so training starts at step 1
    skipped: dict[Path, str]  # newer checkpoints that are damaged or missing -> the reason

    @property
    def step(self) -> int:
        """The last finished step; 0 for a new run."""
        return step_of(self.folder) if self.folder else 0


def step_of(folder: Path) -> int:
    """The step in a checkpoint folder's name."""
    return int(folder.name.removeprefix("global_step_"))


def newest_complete(root: Path) -> ResumeChoice:
    """Find the newest checkpoint whose files are as they were written. Changes nothing. Raises NoCompleteCheckpoint."""
    skipped: dict[Path, str] = {}
    steps = saved_steps(root)
    if (root / TRACKER).exists() and (text := _tracked(root)) not in map(str, steps):
        skipped[root / f"global_step_{text[:40]}"] = f"{TRACKER} names it, but it is missing"
    for step in reversed(steps):
        folder = root / f"global_step_{step}"
        try:
            manifest.check(folder)
        except manifest.DamagedCheckpoint as error:
            skipped[folder] = str(error)
        else:
            return ResumeChoice(folder, skipped)
    if not skipped:
        return ResumeChoice(None, {})
    reasons = "; ".join(f"{path.name}: {reason}" for path, reason in skipped.items())
    raise NoCompleteCheckpoint(
        f"{root} holds a run, but none of its checkpoints is complete ({reasons}). Training never overwrites an "
        "existing run. Restore a complete global_step_<N> from a copy, or start a new run: set another "
        f"EXPERIMENT_NAME, or move {root} away."
    )


def rename_damaged(root: Path, choice: ResumeChoice) -> None:
    """Rename the damaged checkpoints to `global_step_<N>.damaged`, and point the tracker at the chosen one.

    The tracker only names folders next to itself, so it does not change if the chosen checkpoint is another run's.
    Only the process that holds the run folder's lock may call this, before training starts.
    """
    for path, reason in choice.skipped.items():
        logger.warning("Skipped the damaged checkpoint %s: %s", path, reason)
        if path.is_dir():
            os.rename(path, _unused(path.with_name(path.name + DAMAGED)))
    if choice.folder is not None and choice.folder.resolve().parent == root.resolve():
        write_whole(root / TRACKER, str(choice.step))


def _unused(path: Path) -> Path:
    """The path itself, or the path with a number appended if it is taken."""
    number, free = 1, path
    while free.exists():
        number, free = number + 1, path.with_name(f"{path.name}.{number + 1}")
    return free


def partial_dir(root: Path) -> Path:
    """Make an empty folder for the checkpoint to be written. Removes what an earlier crash left there."""
    folder = root / PARTIAL
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def publish(root: Path, step: int) -> Path:
    """Complete the checkpoint with its manifest, move it out of the partial folder, and make it the latest one.

    Returns its folder.
    """
    written, final = root / PARTIAL / f"global_step_{step}", root / f"global_step_{step}"
    manifest.write(written)
    for file in (each for each in written.rglob("*") if each.is_file()):
        _flush(file)
    os.rename(written, final)
    write_whole(root / TRACKER, str(step))
    _flush(root)
    shutil.rmtree(root / PARTIAL, ignore_errors=True)
    return final


def prune(root: Path, keep: int | None) -> None:
    """Remove the oldest checkpoints, but never the newest one or the one that the tracker names.

    Args:
        keep: this many stay; None or 0: all.
    """
    if not keep:
        return
    for step in saved_steps(root)[:-keep]:
        if str(step) != _tracked(root):
            trash = root / PARTIAL / f"removed_{step}"  # renamed first, so half of a checkpoint is never taken for one
            trash.parent.mkdir(exist_ok=True)
            os.rename(root / f"global_step_{step}", trash)
            shutil.rmtree(trash)
    shutil.rmtree(root / PARTIAL, ignore_errors=True)


def _tracked(root: Path) -> str:
    """The text of the tracker file; "" without one."""
    path = root / TRACKER
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""


def saved_steps(root: Path) -> list[int]:
    """The steps of the published checkpoints in the folder, ascending."""
    if not root.exists():
        return []
    return sorted(int(m.group(1)) for path in root.iterdir() if path.is_dir() and (m := STEP.fullmatch(path.name)))


def resume_hint(root: Path) -> str:
    """The last sentence after a run that ended early: where the same command continues."""
    steps = saved_steps(root)
    if not steps:
        return "There is no checkpoint yet: the same command starts again at step 1."
    return f"The last checkpoint is {root / f'global_step_{steps[-1]}'}; the same command continues from it."


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _flush(path: Path) -> None:
    """Write a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
