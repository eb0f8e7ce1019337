"""The error border: one paragraph and an exit code for whatever a command raises."""

import errno
import re
from pathlib import Path

import pytest

from soul.cli.error_border import Parser, run_command
from soul.errors import BadRow, JudgeFailure, OutOfSpace


def raising(error: BaseException) -> int:
    def main() -> None:
        raise error

    return run_command(main)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (BadRow("row 3, field answer: write A or B"), 2, "BadRow: row 3, field answer: write A or B"),
        (OutOfSpace("no space left in x"), 1, "OutOfSpace: no space left in x"),
        (OSError(errno.ENOSPC, "No space left on device", "/big/file"), 1, "no space left in /big. Free"),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), 2, "/root/x: Permission denied."),
        (KeyboardInterrupt(), 130, "Interrupted: run the same command to continue"),
        (JudgeFailure("auth", "judge at x: 401"), 2, "auth: judge at x: 401"),
        (JudgeFailure("timeout", "judge at x: 60 s"), 1, "timeout: judge at x: 60 s"),
    ],
)
def test_each_kind_of_error_is_one_paragraph(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error) == code
    assert text in (printed := capsys.readouterr().err)
    assert len(printed.strip().splitlines()) == 1


def test_a_defect_leaves_its_traceback_in_a_file_without_keys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret-123")
    assert raising(KeyError("sk-secret-123")) == 1
    printed = capsys.readouterr().err
    (file,) = re.findall(r"traceback is in (\S+?);", printed)
    text = Path(file).read_text()
    Path(file).unlink()
    assert "Traceback" in text and "sk-secret-123" not in text + printed


@pytest.mark.parametrize("line", ["task --labels here key=m", "task key=m --labels here", "--labels here task key=m"])
@pytest.mark.parametrize("count", ["*", "+"])
def test_options_may_stand_between_words(line: str, count: str) -> None:
    parser = Parser()
    parser.add_argument("words", nargs=count)
    parser.add_argument("--labels")
    given = parser.parse_args(line.split())
    assert (given.words, given.labels) == (["task", "key=m"], "here")
    command = Parser()
    command.add_subparsers(dest="command").add_parser("agree", parents=[parser], add_help=False)
    assert command.parse_args(["agree", *line.split()]).words == ["task", "key=m"]
