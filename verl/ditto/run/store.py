"""A copy of the run in an object store or another file system that fsspec knows: `trainer.upload_to=s3://bucket/run`.

    <address>/.run_id                          whose run this is
    <address>/metrics.jsonl, traces/...        as in the run folder
    <address>/global_step_7/                   a checkpoint; its manifest.json is written last: then it is whole

After a checkpoint is published, a thread copies what the store lacks; the training never waits for it. A start with an
empty folder first fetches the newest whole checkpoint. Keys of the store come from the environment, where the file
system's own library looks for them.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from omegaconf import DictConfig

from ditto.run import checkpoint, manifest
from ditto.settings import BadConfig
from soul.cli.redaction import redact
from soul.errors import SoulError, one_line
from soul.files import disk_space
from soul.files.whole_file import whole_file, write_whole

logger = logging.getLogger(__name__)

RUN_ID = ".run_id"  # beside a run's checkpoints and in its store: project/experiment and a random number
LAST_TRIES_S = (0.0, 10.0, 60.0)  # waits before the tries at the end of a run
# What is kept of a run besides its checkpoints. Not the judges' cache, the index of the traces, and live traces.
RUN_FILES = ("*.json", "*.jsonl", "*.html", "traces/*.jsonl", "traces/*.jsonl.gz")


class StoreFailed(SoulError):
    """The store did not answer, or refused to read or write a file."""

    exit_code: ClassVar[Literal[1]] = 1


class Store:
    """The files below an address."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            # Without the cache of listings: s3fs takes the listing of a prefix for that of the whole folder.
            self.files, self.root = url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError, OSError) as error:
            raise BadConfig(
                f"trainer.upload_to={url}: {one_line(error, 300)}. Use an address that fsspec knows, such as "
                "s3://bucket/run (package s3fs) or gs://bucket/run (gcsfs), or a folder."
            ) from error

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        try:
            content: bytes = self.files.cat_file(f"{self.root}/{name}")
        except FileNotFoundError:
            return None
        return content

    def put(self, file: Path, name: str) -> None:
        """Copy a file to the store, where it is whole or as it was before."""
        target = f"{self.root}/{name}"
        self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
        if isinstance(self.files, LocalFileSystem):  # an object store shows a file only when it is whole
            with whole_file(Path(target)) as partial:
                shutil.copyfile(file, partial)
        else:
            self.files.put_file(str(file), target)

    def names(self, folder: str = "", depth: int | None = None) -> list[str]:
        """The files below a folder, by their names in the store."""
        paths = self.files.find(f"{self.root}/{folder}".rstrip("/"), maxdepth=depth)
        return [path.removeprefix(f"{self.root}/") for path in paths]

    def remove(self, names: list[str]) -> None:
        """Remove files. (`rm` would take an address with brackets for a pattern.)"""
        for name in names:
            self.files.rm_file(f"{self.root}/{name}")

    def steps(self) -> list[int]:
        """The steps of the whole checkpoints, ascending."""
        whole = [Path(name).parent for name in self.names(depth=2) if Path(name).name == manifest.FILE]
        return sorted(checkpoint.step_of(folder) for folder in whole if checkpoint.STEP.fullmatch(str(folder)))


class Uploads:
    """The uploads of one run, by one process: metrics and traces of `run_dir`, checkpoints of `root`."""

    def __init__(self, store: Store, run_dir: Path, root: Path) -> None:
        self.store, self.run_dir, self.root = store, run_dir, root
        self.failures = self.copied_step = 0
        self.reading: frozenset[int] = frozenset()  # steps of the checkpoints that must stay where they are
        self._copied: dict[Path, float] = {}  # file of the run -> time of the version in the store
        self._alone = threading.Lock()

    @classmethod
    def from_config(cls, config: DictConfig) -> Uploads | None:
        """The uploads that `trainer.upload_to` asks for; None without it."""
        if config.trainer.upload_to is None:
            return None
        return cls(Store(str(config.trainer.upload_to)), Path(config.run.dir).absolute(), _root(config))

    def start(self) -> None:
        """Copy what the store lacks, beside whatever goes on. Returns at once."""
        threading.Thread(target=self._copy, name="uploads", daemon=True).start()

    def metrics(self) -> dict[str, float]:
        """The last step whose checkpoint is in the store, and the number of uploads that failed."""
        return {"ditto/upload_step": self.copied_step, "ditto/upload_failures": self.failures}

    def finish(self, wait: Callable[[float], None] = time.sleep) -> StoreFailed | None:
        """Copy what is left, however long it takes. Returns the last try's failure; None if the store has all."""
        for seconds in LAST_TRIES_S:
            wait(seconds)
            if (failure := self._copy()) is None:
                logger.info("%s holds the run up to step %d", self.store.url, self.copied_step)
                return None
        return StoreFailed(
            f"{failure} {self.failures} uploads of this run failed; the newest checkpoint that it uploaded is that of "
            f"step {self.copied_step}. The checkpoints in {self.root} are whole, and the same command uploads what is "
            "missing."
        )

    def _copy(self) -> str | None:
        """Copy everything that the store lacks, the newest checkpoint first. Returns the store's failure."""
        with self._alone:  # one copy after the other, however many checkpoints are published meanwhile
            try:
                self._copy_run_files()
                for step in reversed(checkpoint.saved_steps(self.root)):
                    self.reading = frozenset({step})
                    self._copy_checkpoint(self.root / f"global_step_{step}")
                    self.copied_step = max(self.copied_step, step)
            except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
                self.failures += 1
                text = f"{self.store.url}: {redact(repr(error))[:300]}."
                logger.error("UPLOAD FAILED: %s", text)
                return text
            finally:
                self.reading = frozenset()
        return None

    def _copy_run_files(self) -> None:
        for path in sorted({path for pattern in RUN_FILES for path in self.run_dir.glob(pattern) if path.is_file()}):
            if self._copied.get(path) != (changed := path.stat().st_mtime):
                self.store.put(path, path.relative_to(self.run_dir).as_posix())
                self._copied[path] = changed

    def _copy_checkpoint(self, folder: Path) -> None:
        last = f"{folder.name}/{manifest.FILE}"
        if self.store.read(last) == (folder / manifest.FILE).read_bytes():
            return
        present = self.store.names(folder.name)  # of an upload that was cut off, or of another attempt at this step
        self.store.remove(sorted(present, key=lambda name: name != last))  # without its manifest it is not whole
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / manifest.FILE)
        for path in [*files, folder / manifest.FILE]:
            self.store.put(path, path.relative_to(self.root).as_posix())
        logger.info("%s has the checkpoint of %s", self.store.url, folder.name)


def prepare_store(config: DictConfig) -> None:
    """Make the store this run's own; if the run's folder is empty, fetch the newest whole checkpoint from it.

    Call it only while holding the run folder's lock, before the checkpoint to resume from is chosen.
    """
    if config.trainer.upload_to is None:
        return
    store, root, run_dir = Store(str(config.trainer.upload_to)), _root(config), Path(config.run.dir).absolute()
    experiment = f"{config.trainer.project_name}/{config.trainer.experiment_name}"
    own = root / RUN_ID
    mine = own.read_text(encoding="utf-8") if own.exists() else None
    is_empty = not checkpoint.saved_steps(root)
    try:
        theirs = (store.read(RUN_ID) or b"").decode()
        continues = not mine and is_empty and theirs.partition(" ")[0] == experiment
        if theirs and mine != theirs and not (continues and config.trainer.resume_mode == "auto"):
            raise BadConfig(
                f"trainer.upload_to={store.url} holds the run {theirs.partition(' ')[0]}, and {root} is not that run. "
                "Use an address of its own for each run; to continue that run here, use its trainer.project_name and "
                "EXPERIMENT_NAME, an empty folder and trainer.resume_mode=auto."
            )
        root.mkdir(parents=True, exist_ok=True)
        write_whole(own, theirs or mine or f"{experiment} {uuid.uuid4().hex}")
        store.put(own, RUN_ID)
        if theirs and is_empty and (steps := store.steps()) and config.trainer.resume_mode == "auto":
            _fetch(store, steps[-1], root, run_dir)
    except OSError as error:
        raise StoreFailed(f"trainer.upload_to={store.url}: {redact(repr(error))[:300]}.") from error


def _fetch(store: Store, step: int, root: Path, run_dir: Path) -> None:
    """Fetch a checkpoint, and the run's metrics and traces."""
    name = f"global_step_{step}"
    logger.info("Fetching %s from %s", name, store.url)
    partial = checkpoint.partial_dir(root)
    targets = {path: partial / path for path in store.names(name)}
    of_run = [path for path in store.names(depth=2) if any(_fits(path, pattern) for pattern in RUN_FILES)]
    targets |= {path: run_dir / path for path in of_run}
    with disk_space.guarded_writes(root):
        for path, target in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            store.files.get_file(f"{store.root}/{path}", str(target))
    try:
        manifest.check(partial / name)
    except manifest.DamagedCheckpoint as error:
        raise manifest.DamagedCheckpoint(
            f"trainer.upload_to={store.url}: {error}. Remove {store.url}/{name} to continue from an earlier checkpoint."
        ) from None
    checkpoint.place(root, step)


def _fits(name: str, pattern: str) -> bool:
    """Compare a name with a pattern level by level, as `Path.glob` reads it."""
    return Path(name).match(pattern) and name.count("/") == pattern.count("/")


def _root(config: DictConfig) -> Path:
    return Path(config.trainer.default_local_dir).absolute()
