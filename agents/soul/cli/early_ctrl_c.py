"""Ctrl-C while a command is still importing its modules. This module imports nothing slow."""

from __future__ import annotations

import signal


def end_silently() -> None:
    """From here on Ctrl-C ends the process at once, without a traceback. Call it before the slow imports.

    A process that ignores Ctrl-C, such as one in the background of a shell, goes on ignoring it. Inside a command's
    `run_command` Ctrl-C raises KeyboardInterrupt again.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
