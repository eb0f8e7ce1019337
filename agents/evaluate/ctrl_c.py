"""Ctrl-C ends an evaluation with one line and exit code 130; what was taken is kept."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agents.errors import SoulError

if TYPE_CHECKING:  # this module is imported before all slow ones: see `end_silently`
    from agents.evaluate.journal import Journal
    from agents.evaluate.settings import Item

EXIT_CODE = 128 + signal.SIGINT


class Interrupted(SoulError):
    """The user ended the run; the message says what is kept and how to go on."""


def end_silently() -> None:
    """From here on Ctrl-C ends the process at once, without a traceback. Call it before the slow imports.

    A process that ignores Ctrl-C, such as one in the background of a shell, goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interruptible(wanted: Sequence[Item], journal: Journal) -> Iterator[None]:
    """Wrap the work on a run's folder in this.

    Raises:
        Interrupted: in place of KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = len({item.key for item in wanted} & journal.samples.keys())
        raise Interrupted(
            f"Interrupted: {kept:,} of {len(wanted):,} samples are kept in {journal.path.parent}; "
            "the same command goes on."
        ) from None


def raise_again() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
