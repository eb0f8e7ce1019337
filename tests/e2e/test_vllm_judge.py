"""A real vLLM server as the judge: it enforces the schema, the gateway finds that out and reads the answer.

The model is tiny and untaught: what it says is noise, in the form that the schema asks for. That form is what is
tested, together with what a random model cannot satisfy, such as an answer that hits the token limit.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from agents.errors import JudgeFailure
from agents.judge import Endpoint, Judge
from tests.e2e.run import ROOT

pytestmark = pytest.mark.slow


class Opinion(BaseModel):
    taken_for: Literal["human", "model", "tie"]
    score: int = Field(ge=0, le=9)
    certain: bool


class Essay(BaseModel):
    text: str = Field(min_length=4000)


@pytest.fixture(scope="module")
def server(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of `vllm serve` on 127.0.0.1; ended by its process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(world / "warm"), "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "2048"]
    command += ["--enforce-eager", "--kv-cache-memory-bytes", str(2**28)]
    log = tmp_path_factory.mktemp("vllm") / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 300
        while not answers(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(60)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def endpoint(url: str, **settings: object) -> Endpoint:
    usual = {"model": "tiny", "base_url": url, "api_key_env": "none", "temperature": 1.0, "max_output_tokens": 200}
    return Endpoint.model_validate({**usual, **settings})


def test_json_schema_output_is_enforced_found_out_and_read(server: str) -> None:
    async def ask() -> tuple[Judge, list[Opinion]]:
        judge = Judge.connect(endpoint(server))
        questions = ({"reply": f"reply {n}"} for n in range(8))
        opinions = await asyncio.gather(*(judge.ask(Opinion, "Give your opinion.", data) for data in questions))
        await judge.close()
        return judge, list(opinions)

    judge, opinions = asyncio.run(ask())
    assert judge.line.mode == "json_schema" and judge.line.settled
    assert all(isinstance(opinion, Opinion) for opinion in opinions)
    assert judge.usage.requests == 8 and judge.usage.completion_tokens > 8 and not judge.usage.failures


def test_an_answer_that_hits_the_token_limit_is_truncated_not_a_score(server: str) -> None:
    judge = Judge.connect(endpoint(server, max_output_tokens=16, max_reasks=1))
    with pytest.raises(JudgeFailure) as caught:
        asyncio.run(judge.ask(Essay, "Write.", {}))
    assert caught.value.cause == "truncated" and judge.usage.requests == 2


def test_an_unknown_model_is_named(server: str) -> None:
    with pytest.raises(JudgeFailure, match="huge"):
        asyncio.run(Judge.connect(endpoint(server, model="huge")).ask(Opinion, "Give your opinion.", {}))


def test_a_context_that_is_too_long_fails_at_once(server: str) -> None:
    judge = Judge.connect(endpoint(server))
    with pytest.raises(JudgeFailure) as caught:
        asyncio.run(judge.ask(Opinion, "Give your opinion.", {"reply": "word " * 4000}))
    assert caught.value.cause == "bad_request"
