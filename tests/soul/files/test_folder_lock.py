"""One writer per folder: what the second one is told, what is left by the dead, and what a holder does that lost it."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from soul.errors import FolderInUse, OutOfSpace
from soul.files import folder_lock
from soul.files.folder_lock import FILE, SILENT_S, FolderLock
from soul.files.writable import NotWritable

HOLD = """
import subprocess, sys, time, multiprocessing
from pathlib import Path
from soul.files.folder_lock import FolderLock
with FolderLock(Path(sys.argv[1]), "training"):
    children = [subprocess.Popen(["sleep", "60"])]
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    forked.start()
    print(children[0].pid, forked.pid, flush=True)
    time.sleep(60)
"""
ELSEWHERE = {"host": "elsewhere", "pid": 7, "work": "training", "machine": "another kernel", "mark": "theirs"}


def test_the_second_start_is_told_host_and_process_and_a_killed_holder_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    children = [int(pid) for pid in holder.stdout.readline().split()]
    with pytest.raises(FolderInUse, match=f"process {holder.pid} on host {platform.node()} .training") as refused:
        FolderLock(tmp_path, "training")
    assert refused.value.exit_code == 2
    holder.kill()
    holder.wait()
    try:  # both of its children live on, one made by fork and one by exec
        # On a busy machine the forked child may not have closed its copy yet.
        with caplog.at_level(logging.WARNING), FolderLock(tmp_path, "training", wait_s=30):
            assert json.loads((tmp_path / FILE).read_text())["pid"] == os.getpid()
        assert f"took over the lock of process {holder.pid} on host" in caplog.text
        assert (tmp_path / FILE).read_text() == ""
        with FolderLock(tmp_path, "training"):  # given back: nothing to take over
            assert caplog.text.count("took over") == 1
    finally:
        for pid in children:
            os.kill(pid, 9)


def test_a_forked_child_neither_holds_the_lock_nor_gives_it_back(tmp_path: Path) -> None:
    with FolderLock(tmp_path, "training") as lock:
        child = multiprocessing.get_context("fork").Process(target=lock.close)
        child.start()
        child.join()
        with pytest.raises(FolderInUse):
            FolderLock(tmp_path, "training")


def test_one_of_many_takers_gets_it(tmp_path: Path) -> None:
    barrier, results = threading.Barrier(16), []

    def take() -> None:
        barrier.wait()
        try:
            results.append(FolderLock(tmp_path, "training"))
        except FolderInUse as error:
            results.append(error)

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (lock,) = [result for result in results if isinstance(result, FolderLock)]
    lock.close()


def silent(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens while the lock waits; nothing really waits."""
    meanwhile: list[Callable[[], object]] = []
    monkeypatch.setattr(time, "sleep", lambda _s: meanwhile.pop(0)() if meanwhile else None)
    return meanwhile


def test_another_machine_holds_it_as_long_as_its_heart_beats(
    tmp_path: Path, clock: list[Callable[[], object]], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE
    path.write_text(json.dumps(ELSEWHERE))
    clock += [lambda: None, lambda: silent(path, 1)]  # its heart beats while we watch
    with pytest.raises(FolderInUse, match=f"process 7 on host elsewhere.* remove {path}"):
        FolderLock(tmp_path, "training")
    assert not clock
    silent(path, SILENT_S + 1)
    clock.append(lambda: silent(path, SILENT_S - 10))  # its clock is behind ours, and it beats
    with pytest.raises(FolderInUse, match="process 7 on host elsewhere"):
        FolderLock(tmp_path, "training")
    silent(path, SILENT_S + 1)
    clock.append(lambda: path.write_text(json.dumps(ELSEWHERE | {"pid": 8, "mark": "third"})))  # a third took it over
    with pytest.raises(FolderInUse, match="process 8 on host elsewhere"):
        FolderLock(tmp_path, "training")
    silent(path, SILENT_S + 1)
    FolderLock(tmp_path, "training").close()
    assert "took over the lock of process 8 on host elsewhere" in caplog.text


def test_a_start_on_a_new_machine_waits_until_the_lost_one_is_certainly_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A scheduler starts a run again within seconds after a node is lost."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    (tmp_path / FILE).write_text(json.dumps(ELSEWHERE))
    silent(tmp_path / FILE, 20)
    FolderLock(tmp_path, "training").close()
    assert sum(waited) == pytest.approx(SILENT_S - 20, abs=2)
    assert "watching for up to 70 s" in caplog.text and "took over" in caplog.text
    (tmp_path / FILE).write_text(json.dumps(ELSEWHERE))
    monkeypatch.setattr(time, "sleep", lambda _s: (tmp_path / FILE).write_text(""))  # it ends in order
    FolderLock(tmp_path, "training").close()
    assert caplog.text.count("took over") == 1


def test_without_kernel_locks_the_last_of_two_simultaneous_takers_wins(
    tmp_path: Path, clock: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with FolderLock(tmp_path, "training"), pytest.raises(FolderInUse, match=f"process {os.getpid()} "):
        clock.append(lambda: silent(tmp_path / FILE, 1))  # the heart beats
        FolderLock(tmp_path, "training")
    clock.append(lambda: (tmp_path / FILE).write_text(json.dumps(ELSEWHERE)))
    with pytest.raises(FolderInUse, match="process 7 on host elsewhere"):
        FolderLock(tmp_path, "training")


def test_a_holder_that_comes_back_notices_that_it_lost_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "SETTLE_S", 0.01)
    monkeypatch.setattr(folder_lock, "HEARTBEAT_S", 0.01)
    lost, sentences = threading.Event(), []

    def on_loss(sentence: str) -> None:
        sentences.append(sentence)
        lost.set()

    lock = FolderLock(tmp_path, "training", on_loss=on_loss)
    assert not lost.wait(0.05)
    (tmp_path / "theirs").write_text(json.dumps(ELSEWHERE))
    os.replace(tmp_path / "theirs", tmp_path / FILE)
    assert lost.wait(5) and "process 7 on host elsewhere" in sentences[0]
    lock.close()
    assert json.loads((tmp_path / FILE).read_text()) == ELSEWHERE  # another's record stays


def test_by_default_such_a_holder_ends_at_once(tmp_path: Path) -> None:
    program = (  # written in one call, so that the holder never reads half of it
        "import soul.files.folder_lock as f, json, os, pathlib, sys, time; f.SETTLE_S = 0.05; p = "
        "pathlib.Path(sys.argv[1])\n"
        "lock = f.FolderLock(p, 'training'); file = p / '.lock'; size = file.stat().st_size\n"
        f"os.pwrite(os.open(file, os.O_WRONLY), json.dumps({ELSEWHERE!r}).ljust(size).encode(), 0); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "This run stops" in done.stderr and "process 7 on host elsewhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_waits_for_a_holder_that_is_about_to_end(tmp_path: Path, clock: list[Callable[[], object]]) -> None:
    first = FolderLock(tmp_path, "training", file=".writer.lock")
    clock.append(first.close)
    FolderLock(tmp_path, "training", file=".writer.lock", wait_s=60).close()


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (errno.EROFS, NotWritable, "\\(OUTPUT_DIR\\): cannot write there \\(Read-only file system"),
        (errno.EACCES, NotWritable, "cannot write there \\(Permission denied"),
        (errno.ENOSPC, OutOfSpace, "no space left in"),
    ],
)
def test_a_folder_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], text: str
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind, match=text):
        FolderLock(tmp_path, "training")


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotWritable, match="cannot write there \\((Not a directory|File exists)"):
        FolderLock(tmp_path / "file" / "run", "training")


def test_a_lock_file_of_another_program_counts_as_an_unknown_holder(
    tmp_path: Path, clock: list[Callable[[], object]]
) -> None:
    (tmp_path / FILE).write_text("12345\n")  # many programs write their process id
    clock.append(lambda: silent(tmp_path / FILE, 1))
    with pytest.raises(FolderInUse, match=r"another process \(unknown\)"):
        FolderLock(tmp_path, "training")
