"""Before a run starts: make its store its own, and fetch a checkpoint that the disk lacks.

The same command on another machine, with an empty disk, so continues from the store (`trainer.upload_to`). A store that
holds another run is refused: the id of a run is in its folder (`.run_id`) and in the store's manifest.
"""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem
from omegaconf import DictConfig

from ditto.run import checkpoint
from ditto.run.checkpoint import NoCompleteCheckpoint
from ditto.run.manifest import DamagedCheckpoint
from ditto.run.store import RUN_ID, RunStore, StoreManifest
from ditto.settings import BadConfig
from soul.files.whole_file import write_whole

logger = logging.getLogger(__name__)


class ForeignStore(BadConfig):
    """The store of a run holds another run."""


def check_address(config: DictConfig) -> None:
    """Check `trainer.upload_to` without asking the store.

    Raises:
        BadConfig: fsspec does not know the address, or it holds a key or is the run's own folder.
    """
    if config.trainer.upload_to is None:
        return
    store, root = RunStore(str(config.trainer.upload_to)), _root(config)
    if isinstance(store.files, LocalFileSystem):
        target = Path(store.root).resolve()
        for folder in {root.resolve(), Path(config.run.dir).resolve()}:
            if target == folder or folder in target.parents or target in folder.parents:
                raise BadConfig(
                    f"trainer.upload_to={store.url} and the run's folder {folder} contain one another. Use a folder "
                    "beside it, best on another disk."
                )


def prepare_store(config: DictConfig) -> None:
    """Claim the store for this run, and with `trainer.resume_mode=auto` fetch its checkpoint if it is newer.

    Call it only while holding the run folder's lock, before the checkpoint to resume from is chosen.

    Raises:
        ForeignStore: it holds another run.
        NoCompleteCheckpoint: all of its checkpoints are damaged, and the disk has no whole one.
        StoreFailed: it does not answer.
    """
    if config.trainer.upload_to is None:
        return
    store, root = RunStore(str(config.trainer.upload_to)), _root(config)
    root.mkdir(parents=True, exist_ok=True)
    _claim(config, store, root)
    if config.trainer.resume_mode == "auto":
        _fetch_newer(store, root, Path(config.run.dir).absolute())
    elif config.trainer.resume_mode == "resume_path":
        _refuse_later(store, checkpoint.step_of(Path(config.trainer.resume_from_path)))


def _claim(config: DictConfig, store: RunStore, root: Path) -> None:
    own, content = root / RUN_ID, store.manifest()
    run = own.read_text(encoding="utf-8").strip() if own.exists() else None
    experiment = f"{config.trainer.project_name}/{config.trainer.experiment_name}"
    if content is None or not (store.run_files() or store.steps()):  # nothing yet, or a start that came to nothing
        content = StoreManifest(run=run or uuid.uuid4().hex, experiment=experiment)
        write_whole(own, content.run)
        store.write_manifest(content)
        return
    if config.trainer.resume_mode == "disable":
        raise ForeignStore(
            f"trainer.resume_mode=disable starts a new run, but {store.url} holds one already. Use another address, or "
            "continue that run with trainer.resume_mode=auto."
        )
    if run is None and content.experiment == experiment and not _has_run(config, root):
        write_whole(own, content.run)  # an empty disk
    elif run != content.run:
        here = f"{root} holds another run" if run or _has_run(config, root) else f"this run is {experiment}"
        raise ForeignStore(
            f"trainer.upload_to={store.url} holds the run {content.experiment}, and {here}. Use an address of "
            "its own for each run; to continue that run here, use its trainer.project_name and EXPERIMENT_NAME and an "
            "empty folder."
        )


def _has_run(config: DictConfig, root: Path) -> bool:
    return bool(checkpoint.saved_steps(root)) or (Path(config.run.dir) / "metrics.jsonl").exists()


def _fetch_newer(store: RunStore, root: Path, run_dir: Path) -> None:
    """Fetch the newest whole checkpoint of the store with metrics and traces, unless the disk has one as new.

    Raises:
        NoCompleteCheckpoint: the store has checkpoints, but neither it nor the disk has a whole one.
    """
    local = _newest_whole(root)
    skipped: list[str] = []
    for step in reversed([step for step in store.steps() if step > local]):
        logger.info("Fetching the checkpoint of step %d from %s", step, store.url)
        try:
            store.get_checkpoint(step, root)
        except DamagedCheckpoint as error:
            logger.warning("Skipped the checkpoint of step %d in %s: %s", step, store.url, error)
            skipped.append(str(error))
            continue
        run_dir.mkdir(parents=True, exist_ok=True)
        store.get_run_files(run_dir)
        return
    if skipped and not local:
        raise NoCompleteCheckpoint(
            f"trainer.upload_to={store.url} holds a run, but none of its checkpoints is complete "
            f"({'; '.join(skipped)}), and {root} has none either. Training never overwrites an existing run. "
            "Restore a complete global_step_<N> in one of the two from a copy, or start a new run: set another "
            "EXPERIMENT_NAME and another trainer.upload_to."
        )


def _newest_whole(root: Path) -> int:
    """The step of the newest whole checkpoint on the disk; 0 if there is none.

    A damaged one does not count, so the store's copy of it is fetched. This reads no large file (`manifest.check`).
    """
    try:
        return checkpoint.newest_complete(root).step
    except NoCompleteCheckpoint:
        return 0


def _refuse_later(store: RunStore, step: int) -> None:
    """Raise ForeignStore if the store has later checkpoints: an empty disk would get those, not this run's."""
    later = max(store.steps(), default=0)
    if later > step:
        raise ForeignStore(
            f"trainer.resume_from_path: {store.url} holds later checkpoints (global_step_{later}). Name another store, "
            "or continue from the newest with trainer.resume_mode=auto."
        )


def _root(config: DictConfig) -> Path:
    return Path(config.trainer.default_local_dir).absolute()
