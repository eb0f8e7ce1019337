"""Ctrl-C while a command is still importing its modules. This module imports nothing slow."""

from __future__ import annotations

import signal


def end_silently() -> None:
    """Make Ctrl-C end the process at once, without a traceback. Call this before the slow imports.

    A process that ignores Ctrl-C, such as a background job of a shell, keeps ignoring it. Inside `run_command`, Ctrl-C
    raises KeyboardInterrupt again.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
