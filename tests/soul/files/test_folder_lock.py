"""One writer per folder: what the second one is told, what is left by the dead, and what a holder does that lost it."""

import logging
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from soul.errors import FolderInUse
from soul.files import folder_lock
from soul.files.folder_lock import FILE, FolderLock, is_held

HOLD = """
import subprocess, sys, time, multiprocessing
from pathlib import Path
from soul.files.folder_lock import FolderLock
with FolderLock(Path(sys.argv[1])):
    children = [subprocess.Popen(["sleep", "60"])]
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    forked.start()
    print(children[0].pid, forked.pid, flush=True)
    time.sleep(60)
"""
ELSEWHERE = "filelock/2\npid=7\nhost=elsewhere\nmode=lease\ntoken=theirs\nduration={}\nstart=1\n"


def test_the_second_start_is_told_host_and_process_and_a_killed_holder_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    children = [int(pid) for pid in holder.stdout.readline().split()]
    with pytest.raises(FolderInUse, match=f"process {holder.pid} on host {platform.node()}") as refused:
        FolderLock(tmp_path)
    assert refused.value.exit_code == 2 and is_held(tmp_path)
    holder.kill()
    holder.wait()
    try:  # both of its children live on, one made by fork and one by exec
        with caplog.at_level(logging.WARNING), FolderLock(tmp_path):
            assert f"pid={os.getpid()}\n" in (tmp_path / FILE).read_text()
        assert f"took over the lock of process {holder.pid}" in caplog.text
        assert not is_held(tmp_path)
        with FolderLock(tmp_path):  # released: there is nothing to take over
            assert caplog.text.count("took over") == 1
    finally:
        for pid in children:
            os.kill(pid, 9)


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats of 50 ms."""
    monkeypatch.setattr(folder_lock, "SILENT_S", 0.6)
    monkeypatch.setattr(folder_lock, "HEARTBEAT_S", 0.05)


def test_another_machine_holds_it_as_long_as_its_heart_beats(
    tmp_path: Path, fast: None, caplog: pytest.LogCaptureFixture
) -> None:
    path, ended = tmp_path / FILE, threading.Event()
    path.write_text(ELSEWHERE.format(0.6))

    def beat() -> None:
        while not ended.wait(0.05):
            os.utime(path)

    heart = threading.Thread(target=beat)
    heart.start()
    with pytest.raises(FolderInUse, match=f"process 7 on host elsewhere.* remove {path}"):
        FolderLock(tmp_path)
    ended.set()
    heart.join()
    FolderLock(tmp_path).close()  # a start on a new machine waits until the lost one is certainly silent
    assert "took over the lock of process 7" in caplog.text


def test_a_holder_that_lost_the_lock_ends_at_once(tmp_path: Path) -> None:
    program = (
        "import soul.files.folder_lock as f, os, pathlib, sys, time; p = pathlib.Path(sys.argv[1])"
        f"; f.HEARTBEAT_S = 0.05; lock = f.FolderLock(p); (p / 'theirs').write_text({ELSEWHERE.format(90.0)!r})\n"
        "os.replace(p / 'theirs', p / f.FILE); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "This run stops" in done.stderr and "process 7 on host elsewhere" in done.stderr
    assert "Traceback" not in done.stderr
