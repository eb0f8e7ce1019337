"""Trouble with a judge is seen at once: the cause, the exit code, and which command takes the failed samples again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from soul.evaluate import command as command_line
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI, Refusal, ServerError, Text
from soul.testing.replies import ChatRequest, Reply

Evaluate = Callable[..., tuple[int, str, str]]
ROWS = 6


@pytest.fixture
def evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """Evaluate invented scenes (judged) and questions (scored by rule): exit code, stdout, stderr."""
    write(["sotopia"], ROWS, tmp_path / "scenes.parquet")
    write(["hitom"], 2, tmp_path / "stories.parquet")

    def run(url: str, *words: str, sets: tuple[str, ...] = ("scenes",), policy_url: str = "") -> tuple[int, str, str]:
        endpoints = [f"policy.base_url={policy_url or url}", f"judge.base_url={url}", "judge.max_attempts=1"]
        files = [str(tmp_path / f"{name}.parquet") for name in sets]
        settings = ["policy.model=under-test", "policy.api_key_env=none", "judge.api_key_env=none"]
        code = command_line.main([*files, *settings, *endpoints, "--out", str(tmp_path / "out"), *words])
        return code, *capsys.readouterr()

    return run


def played_and(judged: Callable[[ChatRequest], Reply]) -> Callable[[ChatRequest], Reply]:
    """The policy leaves every scene; the judge passes its checks, then answers as `judged` says."""
    scenes = 0

    def script(request: ChatRequest) -> Reply:
        nonlocal scenes
        if request.body["model"] == "under-test":
            in_scene = len(request.messages) > 1
            scenes += in_scene
            return Text('{"action_type": "leave", "argument": ""}' if in_scene else "<answer>B</answer>")
        return judged(request) if scenes else answer(request)

    return script


def samples(out: Path) -> list[dict[str, object]]:
    (journal,) = out.glob("*/samples.jsonl")
    return [json.loads(line) for line in journal.open()]


def test_a_run_without_any_verdict_says_the_cause_first_and_fails(evaluate: Evaluate, tmp_path: Path) -> None:
    with FakeOpenAI(played_and(lambda request: ServerError(status=500))) as fake:
        code, out, err = evaluate(fake.url)
        assert code == 1 and out.index("All 6 samples failed (server_error 6)") < out.index("Results")
        assert "NoVerdict: All 6 samples failed (server_error 6). Last server_error: gpt-5-nano at" in err
        assert "(server_error 6): the same command runs them again." in err
        code, out, err = evaluate(fake.url, "--no-preflight", sets=("scenes", "stories"))
    assert code == 0 and "WARNING: 75% of all samples have no verdict." in out  # rules scored the others


def test_the_same_command_takes_again_what_an_endpoint_failed_and_no_more(evaluate: Evaluate, tmp_path: Path) -> None:
    replies = [ServerError(status=503), Refusal(), Refusal(), ServerError(status=503)]

    def failing(request: ChatRequest) -> Reply:
        return replies.pop() if replies else answer(request)

    with FakeOpenAI(played_and(failing)) as fake:
        code, out, _ = evaluate(fake.url, "judge.max_reasks=0", "judge.concurrency=1", "--no-preflight")
        words = "4 of 6 samples failed. 2 because of endpoints or limits (server_error 2): the same command runs them "
        words += "again. 2 because of an answer or a request (refusal 2): only the same command with --retry-failed"
        assert code == 0 and words in out and "WARNING: 67% of all samples have no verdict." in out
        code, out, _ = evaluate(fake.url, "judge.max_reasks=0", "judge.concurrency=1", "--no-preflight")
        assert (
            code == 0 and "4 samples are finished, 2 to run" in out and "2 of 6 samples failed. 2 because of an" in out
        )
        code, out, _ = evaluate(
            fake.url, "judge.max_reasks=0", "judge.concurrency=1", "--no-preflight", "--retry-failed"
        )
        assert code == 0 and "4 samples are finished, 2 to run" in out and "failed." not in out
    assert len(samples(tmp_path / "out")) == ROWS + 2 + 2


def test_each_endpoint_is_asked_once_before_anything_is_written(evaluate: Evaluate, tmp_path: Path) -> None:
    from soul.testing.server import refused_url

    with FakeOpenAI(answer) as fake:
        code, _, err = evaluate(fake.url, policy_url=refused_url())
        assert code == 2 and "BadPolicy: The model under test does not answer, connection" in err
        assert fake.requests == [] and not (tmp_path / "out").exists()
    with FakeOpenAI(lambda request: ServerError(status=500)) as fake:
        code, _, err = evaluate(fake.url)
        assert code == 2 and "server_error" in err and not (tmp_path / "out").exists()
