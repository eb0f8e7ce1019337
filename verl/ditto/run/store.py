"""A run in an object store or another file system that fsspec knows: `trainer.upload_to=s3://bucket/run`.

    <address>/manifest.json                    whose run this is
    <address>/metrics.jsonl, traces/...        as in the run folder
    <address>/global_step_7/                   a checkpoint, as in the run folder
    <address>/global_step_7/manifest.json      the checkpoint's own manifest, written last: it is complete
    <address>/global_step_7/manifest.json.begun    the same, written first: which writing of step 7 this copy is of

Keys of the store come from the environment, where the file system's own library looks for them.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel, ValidationError

from ditto.run import checkpoint, manifest
from ditto.settings import BadConfig
from soul.cli.redaction import redact, secret_parameter, shown_url
from soul.errors import SoulError, one_line
from soul.files import disk_space
from soul.files.whole_file import whole_file
from soul.push.keys import like_keys

RUN_ID = ".run_id"  # beside a run's checkpoints: the id in the manifest of its store
_BEGUN = ".begun"
_UNFINISHED = (_BEGUN, ".partial")  # ends of names: of files that an upload leaves if it is cut off (`whole_file`)
# What is kept of a run besides its checkpoints. Not the judges' cache, the index of the traces, and live traces.
RUN_FILES = ("*.json", "*.jsonl", "*.html", "traces/*.jsonl", "traces/*.jsonl.gz")


class StoreFailed(SoulError):
    """The store did not answer, or refused to read or write a file."""

    exit_code: ClassVar[Literal[1]] = 1


class LooksLikeKey(StoreFailed):
    """A file holds what looks like a key, so it is not uploaded."""


class StoreManifest(BaseModel):
    """Whose run a store holds.

    Attributes:
        run: the id that the run got at its first start.
        experiment: project and name of the experiment.
    """

    schema_version: Literal[1] = 1
    run: str
    experiment: str


class RunStore:
    """The copy of one run.

    Args:
        url: an address that fsspec knows.

    Raises:
        BadConfig: fsspec does not know it, its package is not installed, or it holds a key.
    """

    def __init__(self, url: str) -> None:
        self.url = shown_url(url)
        if self.url != url or secret_parameter(url) or redact(url) != url:
            raise BadConfig(
                f"trainer.upload_to={self.url}: leave user, password and parameters out of the address. Keys come from "
                "the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        try:
            if not url.strip():
                raise ValueError("it is empty")
            # Without the cache of listings: s3fs takes the listing of a prefix for that of the whole folder.
            self.files, self.root = url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError, OSError) as error:
            raise BadConfig(
                f"trainer.upload_to={url}: {one_line(error, 300)}. Use an address that fsspec knows, such as "
                "s3://bucket/run (package s3fs) or gs://bucket/run (gcsfs), or a folder."
            ) from error
        self._began = time.time()
        self._copied: dict[Path, tuple[int, int]] = {}  # file -> size and time of the version that was copied

    def manifest(self) -> StoreManifest | None:
        """The store's manifest; None if no run was copied there.

        Raises:
            StoreFailed: the store does not answer.
            BadConfig: the manifest is not one of a run.
        """
        content = self._read(f"{self.root}/{manifest.FILE}")
        try:
            return None if content is None else StoreManifest.model_validate_json(content)
        except ValidationError as error:
            raise BadConfig(
                f"trainer.upload_to={self.url}: its {manifest.FILE} is not that of a run ({one_line(error, 200)}). Use "
                "another address."
            ) from error

    def write_manifest(self, content: StoreManifest) -> None:
        """Replace the store's manifest."""
        self._write(f"{self.root}/{manifest.FILE}", content.model_dump_json(indent=1).encode())

    def run_files(self) -> dict[str, int]:
        """Name -> bytes of the run's metrics and traces in the store."""
        sizes = self._sizes(self.root, depth=2)
        return {
            name: size
            for name, size in sizes.items()
            if name != manifest.FILE and any(_fits(name, pattern) for pattern in RUN_FILES)
        }

    def put_run_files(self, folder: Path) -> list[str]:
        """Copy those of a run's metrics and traces that the store lacks or may have with another content.

        Returns:
            The files that are left out because they look like keys.
        """
        paths = sorted({path for pattern in RUN_FILES for path in folder.glob(pattern) if path.is_file()})
        stored = self.run_files()
        versions: dict[str, tuple[int, int]] = {}
        for path in paths:
            name, status = path.relative_to(folder).as_posix(), path.stat()
            version, copied = (status.st_size, status.st_mtime_ns), self._copied.get(path)
            # A finished trace of an earlier process is compared by its size alone.
            same = "/" in name and status.st_mtime < self._began if copied is None else copied == version
            if not same or stored.get(name) != status.st_size:
                versions[name] = version
        left_out = list(like_keys(folder, versions))
        for name, version in versions.items():
            if name not in left_out:
                self._put(folder / name, f"{self.root}/{name}")
                self._copied[folder / name] = version
        return left_out

    def put_checkpoint(self, folder: Path) -> bool:
        """Copy a published checkpoint, or what the store lacks of it: after an interrupted upload, or a new card.

        Returns:
            True if anything was left to copy.

        Raises:
            LooksLikeKey: one of its files looks like a key.
            StoreFailed: the store does not take a file.
        """
        target, content = f"{self.root}/{folder.name}", (folder / manifest.FILE).read_bytes()
        last = f"{target}/{manifest.FILE}"
        # Cards are no part of the manifest: one is written again after the validation, and people edit them.
        cards = sorted(path.relative_to(folder).as_posix() for path in folder.rglob(manifest.CARD))
        if self._read(last) == content:
            changed = [name for name in cards if self._read(f"{target}/{name}") != (folder / name).read_bytes()]
            self._put_whole(folder, target, changed)
            return bool(changed)
        names = list(json.loads(content)["files"])
        if self._read(last + _BEGUN) != content:  # nothing yet, or another attempt at this step
            self._remove(last)  # first: a copy without its manifest counts as incomplete
            self._remove(target)
            self._write(last + _BEGUN, content)
        sizes = self._sizes(target)
        missing = [name for name in names if sizes.get(name) != (folder / name).stat().st_size]
        self._put_whole(folder, target, [*missing, *cards])
        self._write(last, content)
        self._remove(last + _BEGUN)
        return True

    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, ascending."""
        names = [Path(name) for name in self._sizes(self.root, depth=2)]
        folders = [name.parent for name in names if name.name == manifest.FILE]
        return sorted(checkpoint.step_of(folder) for folder in folders if checkpoint.STEP.fullmatch(str(folder)))

    def get_checkpoint(self, step: int, root: Path) -> None:
        """Fetch a checkpoint into the folder of a run's checkpoints. One of that step there is renamed as damaged.

        Raises:
            DamagedCheckpoint: it is not as it was written.
            OutOfSpace: the disk has no room for it.
        """
        source, folder = f"{self.root}/global_step_{step}", checkpoint.partial_dir(root) / f"global_step_{step}"
        sizes = {name: size for name, size in self._sizes(source).items() if not name.endswith(_UNFINISHED)}
        disk_space.require(root, sum(sizes.values()))
        try:
            with disk_space.guarded_writes(root):
                for name in sizes:
                    self._get(f"{source}/{name}", _inside(folder, name))
            manifest.check(folder)
            damaged = root / folder.name
            if damaged.exists():
                reason = f"its copy in {self.url} replaces it"
                checkpoint.rename_damaged(root, checkpoint.ResumeChoice(None, {damaged: reason}))
            checkpoint.place(root, step)
        except manifest.DamagedCheckpoint as error:
            copy = f"{self.url}/{folder.name}"
            raise manifest.DamagedCheckpoint(str(error).replace(str(folder), copy)) from None
        finally:
            shutil.rmtree(root / checkpoint.PARTIAL, ignore_errors=True)

    def get_run_files(self, folder: Path) -> None:
        """Fetch a run's metrics and traces; a file that is there already is replaced."""
        sizes = self.run_files()
        disk_space.require(folder, sum(sizes.values()))
        with disk_space.guarded_writes(folder):
            for name in sizes:
                fetched = _inside(folder, f"{name}.fetched")
                self._get(f"{self.root}/{name}", fetched)
                os.replace(fetched, folder / name)

    @contextmanager
    def _answers(self, verb: str, path: str = "") -> Iterator[None]:
        """A block that asks the store.

        Raises:
            StoreFailed: it fails.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
            place = path.removeprefix(self.root).lstrip("/") or "it"
            raise StoreFailed(f"{self.url}: cannot {verb} {place}: {redact(repr(error))[:300]}.") from error

    def _read(self, path: str) -> bytes | None:
        with self._answers("read", path):
            try:
                content: bytes = self.files.cat_file(path)
            except FileNotFoundError:
                return None
            return content

    def _write(self, path: str, content: bytes) -> None:
        with self._replaces(path) as target:
            self.files.pipe_file(target, content)

    def _put(self, file: Path, path: str) -> None:
        with self._replaces(path) as target:
            self.files.put_file(str(file), target)

    def _put_whole(self, folder: Path, target: str, names: Iterable[str]) -> None:
        """Copy files of a checkpoint, unless one of them looks like a key."""
        for name, place in like_keys(folder, names := list(names)).items():
            raise LooksLikeKey(
                f"{folder / name} looks like a key or a password ({place}): {folder.name} is not uploaded as it is "
                "now. Remove the key from the file; the next upload then includes it."
            )
        for name in names:
            self._put(folder / name, f"{target}/{name}")

    @contextmanager
    def _replaces(self, path: str) -> Iterator[str]:
        """A block that writes a file to the path that it gets; then it is at `path`, or as it was before.

        An object store shows a file only when it is whole. A folder does not, and fsspec's transactions write to /tmp,
        from where a file is copied to another disk.
        """
        with self._answers("write", path):
            self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
            if isinstance(self.files, LocalFileSystem):
                with whole_file(Path(path)) as partial:
                    yield str(partial)
            else:
                yield path

    def _get(self, path: str, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._answers("read", path):
            self.files.get_file(path, str(file))

    def _remove(self, path: str) -> None:
        """Remove a file, or all files below a folder."""
        with self._answers("remove", path):
            for file in self.files.find(path):  # `rm`, like `glob`, takes an address with brackets for a pattern
                self.files.rm_file(file)

    def _sizes(self, folder: str, depth: int | None = None) -> dict[str, int]:
        """Name -> bytes of the files below a folder of the store, at most so many levels below."""
        with self._answers("list", folder):
            entries = self.files.find(folder, maxdepth=depth, detail=True)
            return {path.removeprefix(f"{folder}/"): int(entry["size"]) for path, entry in entries.items()}


def _fits(name: str, pattern: str) -> bool:
    """True if a name matches a pattern level by level, as `Path.glob` reads it."""
    return Path(name).match(pattern) and name.count("/") == pattern.count("/")


def _inside(folder: Path, name: str) -> Path:
    """The path of a name that the store says is one of a folder's files."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise StoreFailed(f"The store names a file outside of its folder: {name}. Nothing was written there.")
    return folder / name
