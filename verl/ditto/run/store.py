"""A run in an object store or another file system that fsspec knows: `trainer.upload_to=s3://bucket/run`.

    <address>/manifest.json                    whose run this is; sizes and hashes of its metrics and traces
    <address>/metrics.jsonl, traces/...        as in the run folder
    <address>/global_step_7/                   a checkpoint, as in the run folder
    <address>/global_step_7/manifest.json      the checkpoint's own manifest, written last: it is complete
    <address>/global_step_7/manifest.json.begun    the same, written first: which writing of step 7 this copy is of

Keys of the store come from the environment, where the file system's own library looks for them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
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

logger = logging.getLogger(__name__)

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


class RunFile(BaseModel):
    """One file of a run in the store."""

    bytes: int
    sha256: str


class StoreManifest(BaseModel):
    """Whose run a store holds.

    Attributes:
        run: the id that the run got at its first start.
        experiment: project and name of the experiment.
        files: name -> its content at the last upload.
    """

    schema_version: Literal[1] = 1
    run: str
    experiment: str
    files: dict[str, RunFile] = {}


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
        self._hashes: dict[Path, tuple[tuple[int, int], str]] = {}
        self._cards: dict[str, dict[str, str]] = {}  # checkpoint in the store -> card -> hash of what it is there

    # ---- whose run it is ----------------------------------------------------------------------------------------

    def manifest(self) -> StoreManifest | None:
        """The store's manifest; None if no run was copied there.

        Raises:
            StoreFailed: the store does not answer.
            BadConfig: the manifest is not one of a run.
        """
        content = self._read(f"{self.root}/{manifest.FILE}")
        if content is None:
            return None
        try:
            return StoreManifest.model_validate_json(content)
        except ValidationError as error:
            raise BadConfig(
                f"trainer.upload_to={self.url}: its {manifest.FILE} is not that of a run ({one_line(error, 200)}). Use "
                "another address."
            ) from error

    def write_manifest(self, content: StoreManifest) -> None:
        """Replace the store's manifest."""
        self._write(f"{self.root}/{manifest.FILE}", content.model_dump_json(indent=1).encode())

    # ---- upload -------------------------------------------------------------------------------------------------

    def put_run_files(self, folder: Path, known: StoreManifest) -> tuple[StoreManifest, list[str]]:
        """Copy those of a run's files that the store lacks or has with another content, then the store's manifest.

        Returns:
            The new manifest, and the files that are left out because they look like keys.
        """
        paths = sorted({path for pattern in RUN_FILES for path in folder.glob(pattern) if path.is_file()})
        current = {path.relative_to(folder).as_posix(): self._run_file(path) for path in paths}
        changed = [name for name, file in current.items() if known.files.get(name) != file]
        left_out = list(like_keys(folder, changed))
        for name in changed:
            if name not in left_out:
                self._put(folder / name, f"{self.root}/{name}")
        files = {name: file for name, file in current.items() if name not in left_out}
        content = known.model_copy(update={"files": files})
        if content != known:
            self.write_manifest(content)
        return content, left_out

    def _run_file(self, path: Path) -> RunFile:
        """Size and hash of a file, which is read again only if it has changed."""
        status = path.stat()
        version = (status.st_size, status.st_mtime_ns)
        known = self._hashes.get(path)
        if known is None or known[0] != version:
            known = self._hashes[path] = version, manifest.sha256_of(path)
        return RunFile(bytes=status.st_size, sha256=known[1])

    def put_checkpoint(self, folder: Path) -> bool:
        """Copy a published checkpoint, or what the store lacks of it: after an interrupted upload, or a new card.

        Returns:
            Whether anything was left to copy.

        Raises:
            LooksLikeKey: one of its files looks like a key.
            StoreFailed: the store does not take a file.
        """
        target, content = f"{self.root}/{folder.name}", (folder / manifest.FILE).read_bytes()
        last = f"{target}/{manifest.FILE}"
        # Cards are no part of the manifest: one is written again after the validation, and people edit them.
        cards = sorted(path.relative_to(folder).as_posix() for path in folder.rglob(manifest.CARD))
        if self._read(last) == content:
            return self._put_cards(folder, target, cards)
        names = list(json.loads(content)["files"])
        _refuse_keys(folder, [*names, *cards])
        if self._read(last + _BEGUN) != content:  # nothing yet, or another attempt at this step
            self._remove(last)  # first: a copy without its manifest counts as incomplete
            self._remove(target)
            self._cards.pop(target, None)
            self._write(last + _BEGUN, content)
        sizes = self._sizes(target)
        for name in names:
            if sizes.get(name) != (folder / name).stat().st_size:
                self._put(folder / name, f"{target}/{name}")
        self._put_cards(folder, target, cards)
        self._write(last, content)
        self._remove(last + _BEGUN)
        return True

    def _put_cards(self, folder: Path, target: str, cards: list[str]) -> bool:
        """Copy those of a checkpoint's cards that the store lacks or has with another text. Returns whether any was.

        The store's card is read once per process.
        """
        copied, known = False, self._cards.setdefault(target, {})
        for name in cards:
            current = self._run_file(folder / name).sha256
            if name not in known:
                known[name] = hashlib.sha256(self._read(f"{target}/{name}") or b"").hexdigest()
            if known[name] != current:
                _refuse_keys(folder, [name])
                self._put(folder / name, f"{target}/{name}")
                known[name], copied = current, True
        return copied

    # ---- download -----------------------------------------------------------------------------------------------

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

    def get_run_files(self, folder: Path, content: StoreManifest) -> None:
        """Fetch a run's metrics and traces; a file that is there already is replaced."""
        disk_space.require(folder, sum(file.bytes for file in content.files.values()))
        with disk_space.guarded_writes(folder):
            for name in content.files:
                fetched = _inside(folder, f"{name}.fetched")
                self._get(f"{self.root}/{name}", fetched)
                os.replace(fetched, folder / name)

    # ---- one file -----------------------------------------------------------------------------------------------

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
        """name -> bytes of the files below a folder of the store, at most so many levels below."""
        with self._answers("list", folder):
            entries = self.files.find(folder, maxdepth=depth, detail=True)
            return {path.removeprefix(f"{folder}/"): int(entry["size"]) for path, entry in entries.items()}


def _refuse_keys(folder: Path, names: list[str]) -> None:
    """Raise LooksLikeKey if one of a checkpoint's files looks like a key."""
    for name, place in like_keys(folder, names).items():
        raise LooksLikeKey(
            f"{folder / name} looks like a key or a password ({place}): {folder.name} is not uploaded as it is now. "
            "Remove the key from the file; the next upload then includes it."
        )


def _inside(folder: Path, name: str) -> Path:
    """The path of a name that the store says is one of a folder's files."""
    if ".." in Path(name).parts or Path(name).is_absolute():
        raise StoreFailed(f"The store names a file outside of its folder: {name}. Nothing was written there.")
    return folder / name
