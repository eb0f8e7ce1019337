"""Logging of our own packages: one handler and one format, on stderr.

    2026-11-22 16:20:01 WARNING soul.judge.limits: 4 calls wait for gpt-5-nano at https://...

`SOUL_LOG=debug` (info, warning, error; default info) sets the level. The loggers of other libraries keep their levels
and handlers. Keys are replaced by `***` in every line, tracebacks included. `soul.cli.error_border.run_command` sets
this up for a command; processes that Ray or torchrun start call `set_up` themselves.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from soul.cli.redaction import redact
from soul.errors import BadSettings

VARIABLE = "SOUL_LOG"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_PACKAGES = ("soul", "ditto", "sft")


class _Redacted(logging.Formatter):
    """Redacts keys in the finished line. A logging filter would not see the traceback, which is formatted last."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`; a live display may have replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handler = _Handler()
_handler.setFormatter(_Redacted("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"))


def set_up() -> None:
    """Start to log to stderr. A second call changes only the level. Raises BadSettings: SOUL_LOG is not a level."""
    level = os.environ.get(VARIABLE, "INFO").strip().upper() or "INFO"
    if level not in LEVELS:
        raise BadSettings(f"{VARIABLE}={os.environ[VARIABLE]}: use {', '.join(LEVELS[:-1])} or {LEVELS[-1]}.")
    for name in _PACKAGES:
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = False  # where verl gives the root logger a handler, each line would be printed twice
        if _handler not in logger.handlers:
            logger.addHandler(_handler)


@contextmanager
def to_stderr() -> Iterator[None]:
    """Log to stderr inside this block, and restore the loggers afterwards. Raises as `set_up`."""
    loggers = [logging.getLogger(name) for name in _PACKAGES]
    before = [(logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    set_up()
    try:
        yield
    finally:
        for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.propagate, logger.handlers = propagate, handlers
