"""Ctrl-C (exit code 130) and SIGTERM (143) at any moment: one line, no traceback; the same command goes on.

Real processes get a real signal: while modules are imported, before the first sample, in the middle of the samples, and
while a server is loaded, asked and stopped.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from soul.examples.command import write
from soul.testing import FakeOpenAI, Text
from tests.soul.evaluate.test_local import alive, bin, starts, until  # noqa: F401 - a fixture
from tests.soul.evaluate.vllm_replaced import model

ROOT = Path(__file__).resolve().parents[4]
PYTHON = sys.executable
ROWS = 24


@pytest.fixture
def stories(tmp_path):
    write(["hitom"], ROWS, tmp_path / "stories.parquet")
    return tmp_path / "stories.parquet"


def api(url, stories, out):
    words = ["policy.model=under-test", f"policy.base_url={url}", "policy.concurrency=2"]
    words += [f"judge.base_url={url}", "judge.api_key_env=none", "--out", str(out)]
    return [PYTHON, "-m", "soul", "evaluate", str(stories), *words]


def started(command, **environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    return subprocess.Popen(command, **pipes, **environment)


def interrupted(process, ready, sign=signal.SIGINT):
    """Send the signal when it is ready; its exit code and what it printed."""
    try:
        until(lambda: ready() or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(sign)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


def samples(out):
    return [json.loads(line) for path in out.glob("*/samples.jsonl") for line in path.open()]


def test_in_the_middle_of_the_samples(stories, tmp_path):
    out = tmp_path / "out"
    with FakeOpenAI(lambda request: Text("<answer>B</answer>", delay=0.1)) as fake:
        command = api(fake.url, stories, out)
        code, _, err = interrupted(started(command), lambda: len(samples(out)) >= 5, sign=signal.SIGHUP)
        kept = samples(out)
        asked = len(fake.requests)
        again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        played = [request.text for request in fake.requests[asked:] if "Story:" in request.text]
    assert code == 129 and 5 <= len(kept) < ROWS
    (folder,) = out.iterdir()
    kept_text = f"{len(kept)} of {ROWS} samples are kept in {folder}"
    assert err.strip() == f"Terminated: {kept_text}; run the same command to continue."
    assert again.returncode == 0 and f"{len(kept)} samples are finished, {ROWS - len(kept)} to run" in again.stdout
    assert len(played) == ROWS - len(kept) == len(set(played))
    assert sorted(sample["number"] for sample in samples(out)) == list(range(ROWS))


def local(tmp_path, stories):
    model(tmp_path / "model")
    words = ["--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), str(stories)]
    script = "import sys; from soul.evaluate import local; sys.executable = sys.argv[1]; "
    script += "sys.exit(local.main(sys.argv[2:]))"
    words += ["policy.requests_per_minute=2"]  # its own rate keeps the evaluation under way
    return [PYTHON, "-c", script, str(tmp_path / "bin" / "python"), *words]


def test_while_a_server_is_loaded(bin, stories, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("STAND_IN_LOADS_S", "600")
    code, _, err = interrupted(started(local(tmp_path, stories)), lambda: starts(bin))
    assert (code, len(err.split("\n")), "0 of 24 samples are kept" in err) == (130, 4, True), err
    until(lambda: not alive(starts(bin)[0]))
