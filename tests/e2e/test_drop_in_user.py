"""A real checkpoint, served by vLLM, plays a user; the audit reads what was kept."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from soul.drop_in.audit import read
from soul.drop_in.faults import faults
from soul.drop_in.player import NEVER_SENT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
TOLD = "You are Mia, a nurse. You want a table for two on Friday. When it is booked, write ###STOP###."
HEARD = ("Hello! How can I help you?", "Which day?", "It is booked. Anything else?")


def test_a_checkpoint_plays_a_user_whose_turns_are_never_harmful(real_model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "talks.jsonl"
    words = [str(real_model), "--platform", "cpu", "--port", "0", "--keep", str(kept), "--tries", "2"]
    command = [sys.executable, "-m", "soul", "serve", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "plays the user" in line)
        address = line.split(" plays the user at ")[1].split(". ")[0]
        messages = [{"role": "system", "content": TOLD}]
        for heard in HEARD:
            messages.append({"role": "user", "content": heard})
            body = json.dumps({"messages": messages, "max_tokens": 32, "seed": 1}).encode()
            request = urllib.request.Request(f"{address}/chat/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=600) as answer:
                messages.append(json.load(answer)["choices"][0]["message"])
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    found = read(kept)
    assert [len(talk.messages) for talk in found] == [2 * len(HEARD)]
    assert not {fault.rule for talk in found for fault in faults(talk)} & NEVER_SENT
