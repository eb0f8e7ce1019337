"""Log lines: once each, with time, level and subject, on stderr, without keys."""

import logging
import re

import pytest

from soul.cli import logs
from soul.cli.error_border import run_command

LINE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING soul\.judge\.limits: 3 calls wait\n"


def log() -> None:
    logging.getLogger("soul.judge.limits").warning("3 calls wait")


def test_a_line_stands_once_on_stderr_even_where_others_have_a_root_handler(capsys: pytest.CaptureFixture[str]) -> None:
    others = logging.StreamHandler()  # what logging.basicConfig makes
    logging.getLogger().addHandler(others)
    try:
        logs_before = list(logging.getLogger("soul").handlers)
        assert run_command(log) == 0
    finally:
        logging.getLogger().removeHandler(others)
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(LINE, err)
    assert logging.getLogger("soul").handlers == logs_before and logging.getLogger("soul").propagate


def test_keys_are_blanked_in_the_message_and_in_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret-123")
    with logs.to_stderr():
        try:
            raise ValueError("sk-secret-123 was refused")
        except ValueError:
            logging.getLogger("ditto").exception("the key %s", "sk-secret-123")
    err = capsys.readouterr().err
    assert "the key ***" in err and "ValueError: *** was refused" in err and "sk-secret" not in err


def test_the_level_is_that_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def info() -> None:
        logging.getLogger("sft.trainer").info("step 1")
        logging.getLogger("vllm").info("not ours")

    run_command(info)
    assert "INFO sft.trainer: step 1" in (err := capsys.readouterr().err) and "not ours" not in err
    monkeypatch.setenv(logs.VARIABLE, "error")
    run_command(info)
    run_command(log)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(logs.VARIABLE, "loud")
    assert run_command(info) == 2
    assert "SOUL_LOG=loud: use DEBUG, INFO, WARNING or ERROR." in capsys.readouterr().err
