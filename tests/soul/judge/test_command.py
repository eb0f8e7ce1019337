"""`soul judge`: what a user sees, over real HTTP; and that no character of a key is among it."""

import json

import pytest
from rich.console import Console

from soul.judge.command import main
from soul.testing import FakeOpenAI, Json, Text, Unauthorized, refused_url

KEY = "sk-sentinel-abcdef-0123456789"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("soul.judge.command.console", Console(width=200))
    for name in ("OPENAI_BASE_URL", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING", "OPENAI_AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)


def ready(request):
    return Json({"ready": True}) if "response_format" in request.body else Text("ready")


def test_show_prints_every_role_and_no_character_of_a_key(monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_AGENT_MODEL", "gpt-5.4-mini")
    monkeypatch.setenv("JUDGE_MODEL_NAME", "gpt-judge")
    words = ["partner.model=talker", "environment.base_url=http://user:sentinel-password@127.0.0.1:9/v1"]
    assert main(["show", *words]) == 0
    shown = capsys.readouterr().out
    for part in ("gpt-judge", "talker", "gpt-5.4-mini", "OPENAI_API_KEY: set", "http://127.0.0.1:9/v1", "none needed"):
        assert part in shown
    assert "sentinel" not in shown and KEY[:6] not in shown
    monkeypatch.delenv("OPENAI_API_KEY")
    assert main(["show"]) == 0
    assert "OPENAI_API_KEY: NOT SET" in capsys.readouterr().out


def test_check_asks_every_role_and_times_the_second_request(capsys):
    with FakeOpenAI(ready) as fake:
        assert main(["check", f"judge.base_url={fake.url}", "partner.model=talker"]) == 0
    shown = capsys.readouterr().out
    models = [request.body["model"] for request in fake.requests]
    assert models[::2] == models[1::2] == ["gpt-5-nano", "gpt-5-nano", "talker", "gpt-5-nano", "gpt-5.4"]
    assert "judge: works" in shown and "structured answers as json_schema" in shown
    assert "judge.by_task.coser: works" in shown


def test_check_names_what_fails(monkeypatch, capsys):
    with FakeOpenAI(Unauthorized()) as fake:
        assert main(["check", f"judge.base_url={fake.url}"]) == 1
    shown = capsys.readouterr().out
    assert "judge: FAILED  Cannot use the judge (auth)" in shown and KEY not in shown
    assert main(["check", f"judge.base_url={refused_url()}", "judge.max_attempts=1"]) == 1
    assert "connection" in capsys.readouterr().out
    monkeypatch.delenv("OPENAI_API_KEY")
    assert main(["check"]) == 1
    assert "OPENAI_API_KEY is not set" in capsys.readouterr().out.replace("\n", " ")


def test_canaries_end_with_an_exit_code(tmp_path):
    def gullible(request):
        return ready(request) if "ping" in request.data else Json({"reason": "great", "score": 10})

    out = tmp_path / "canaries.json"
    with FakeOpenAI(gullible) as fake:
        assert main(["canaries", f"judge.base_url={fake.url}", "--json", str(out)]) == 1
    assert json.loads(out.read_text())["passed"] is False


@pytest.mark.parametrize("words", [["judge.modle=x"], ["jugde.model=x"], ["judge"], ["judge.max_attempts=many"]])
def test_a_wrong_setting_is_the_users_mistake(words, capsys):
    assert main(["show", *words]) == 2
    assert "BadSettings" in capsys.readouterr().err
