"""A command that writes a journal of samples, killed with -9 on its way and then run to its end."""

import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 60


def killed_and_finished(command: Sequence[str], folder: Path, journals: str, at: Sequence[int]) -> None:
    """Start the command once for each number in `at`, and kill it when so many samples are there; then let it end.

    Args:
        journals: a pattern of the journals' paths in `folder`.
    """

    def taken() -> int:
        return sum(path.read_bytes().count(b"\n") for path in folder.glob(journals))

    for enough in at:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        deadline = time.monotonic() + PATIENCE_S
        while taken() < enough:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
