"""The message that the user sees when a command fails, and its exit code.

    0    success
    1    the run started and could not continue (disk full, all verdicts failed, a bug of ours)
    2    the command or its input is wrong: one paragraph names file, row, field and remedy
    130  Ctrl-C        143  SIGTERM; 129 SIGHUP (a lost ssh), 138 SIGUSR1 (a batch system's warning)

An unexpected exception is one paragraph too; it names the file with the traceback.
"""

import argparse
import functools
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

from soul.cli import logs
from soul.cli.arguments import output_file
from soul.cli.redaction import redact_guessing
from soul.errors import PERMANENT, SessionError, SoulError
from soul.files.disk_writes import is_full, limit_reached, out_of_space

FAILED = 1
USER_ERROR = SoulError.exit_code
INTERRUPTED = 128 + signal.SIGINT
TERMINATING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Parser(argparse.ArgumentParser):
    """The parser of every command: its description keeps its lines, and its errors repeat no key.

    Options may stand between words: `soul judge agree sotopia --labels FOLDER judge.model=NAME`.
    """

    _intermixing = False

    def __init__(self, *arguments: object, **options: object) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        super().error(redact_guessing(message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse an output file that is one of the inputs; subcommands are parsed by this, too."""
        args = sys.argv[1:] if args is None else args
        counts = {action.nargs for action in self._actions if not action.option_strings}
        mixed = bool(counts & {"*", "+"}) and not counts & {argparse.PARSER, argparse.REMAINDER} and "--" not in args
        if mixed and not self._intermixing:
            self._intermixing = True  # argparse's own method calls this one, for options and for words
            try:
                return self.parse_known_intermixed_args(args, namespace)
            finally:
                self._intermixing = False
        given, rest = super().parse_known_args(args, namespace)
        values = {action.dest: getattr(given, action.dest, None) for action in self._actions}
        outputs = {action.dest: values.pop(action.dest) for action in self._actions if action.type is output_file}
        words = (word for value in values.values() for word in (value if isinstance(value, list) else [value]))
        inputs = {Path(word).resolve() for word in words if isinstance(word, (str, Path)) and os.path.isfile(word)}
        for name, path in outputs.items():
            if path is not None and Path(path).resolve() in inputs:
                self.error(
                    f"argument --{name.replace('_', '-')}: {path} is an input of this command; pass another path"
                )
        return given, rest


class Main(Protocol):
    """A command; without arguments it takes those of the process. It returns its exit code."""

    def __call__(self, arguments: Sequence[str] | None = None) -> int: ...


def reports_errors(main: Callable[[Sequence[str] | None], int | None]) -> Main:
    """Decorator: run `main(arguments)` inside `run_command`. Without arguments, `main` reads those of the process."""

    @functools.wraps(main)
    def bordered(arguments: Sequence[str] | None = None) -> int:
        return run_command(lambda: main(arguments))

    return bordered


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command, and return its exit code; None from `main` means 0.

    Its log lines go to stderr (`soul.cli.logs`), and so does its error, as one paragraph.
    """
    try:
        with logs.to_stderr(), _signals():
            code = main() or 0
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except SoulError as error:
        if error.exit_code == INTERRUPTED:
            return _interrupted(str(error))
        return _report(f"{type(error).__name__}: {error}", error.exit_code)
    except SessionError as error:  # a call to an endpoint failed outside any session
        return _report(f"{type(error).__name__}: {error}", USER_ERROR if error.cause in PERMANENT else FAILED)
    except KeyboardInterrupt:
        return _interrupted("run the same command to continue.")
    except BrokenPipeError:  # the reader of our output has exited (`... | head`)
        _drop_output()
        return FAILED
    except (OSError, MemoryError) as error:
        if limit := limit_reached(error):
            return _report(str(limit), FAILED)
        if isinstance(error, MemoryError):
            return _report("Out of memory. Free some memory on this machine, then run the same command again.", FAILED)
        if is_full(error) and error.filename is None and _output_is_full():
            _drop_output()
            return _report("Standard output takes no more: the disk is full that it is written to.", FAILED)
        if is_full(error):
            full = out_of_space(Path(error.filename).parent if error.filename else Path.cwd())
            return _report(f"{type(full).__name__}: {full}", full.exit_code)
        if error.filename is None:
            return _report(_unexpected(error), FAILED)
        return _report(f"{error.filename}: {error.strerror}.", USER_ERROR)
    except Exception as error:  # noqa: BLE001 - the outermost handler: anything else is a bug, and is reported
        return _report(_unexpected(error), FAILED)


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _output_is_full() -> bool:
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError as error:
        return is_full(error)
    return False


@contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C, SIGTERM and the like raise KeyboardInterrupt in this block, so that files and connections are closed.

    If the process ignores a signal, as background jobs of a shell do, it keeps ignoring it.
    """
    _received.clear()
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        wanted = {signal.SIGINT: signal.default_int_handler} | dict.fromkeys(TERMINATING, _terminate)
        ours = {number: handler for number, handler in wanted.items() if signal.getsignal(number) is signal.SIG_DFL}
        before = {number: signal.signal(number, handler) for number, handler in ours.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_received: list[int] = []  # TERMINATING signals since the command began


def _terminate(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    interrupt = signal.getsignal(signal.SIGINT)  # asyncio's own handler while a loop runs: it cancels the tasks first
    if callable(interrupt):
        interrupt(signal.SIGINT, frame)
    else:  # this process ignores Ctrl-C, but not SIGTERM
        raise KeyboardInterrupt


def _interrupted(text: str) -> int:
    if _received:
        return _report(f"Terminated: {text}", 128 + _received[0])
    return _report(f"Interrupted: {text}", INTERRUPTED)


def _report(text: str, code: int) -> int:
    with suppress(OSError):  # the terminal may be gone
        print(f"\n{redact_guessing(text)}\n", file=sys.stderr)
    return code


def _unexpected(error: BaseException) -> str:
    text = " ".join(str(error).split())[:500]
    return (
        f"Unexpected {type(error).__name__}: {text or 'no message'}. This is a bug, or a case that the program "
        f"does not handle. The traceback is in {keep_traceback(error)}; please attach it to your report."
    )


def keep_traceback(error: BaseException) -> str:
    """Write an exception's traceback to a temporary file and return the file's name."""
    text = redact_guessing("".join(traceback.format_exception(error)))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="soul-error-", suffix=".txt", delete=False) as file:
            file.write(text)
        return file.name
    except OSError:  # if no file can be written, print the traceback
        print(text, file=sys.stderr)
        return "the lines above"
