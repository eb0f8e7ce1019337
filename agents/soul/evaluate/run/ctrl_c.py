"""Ctrl-C and SIGTERM end an evaluation with one line that says what is kept (`soul.cli.error_border` has the codes)."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from soul.errors import SoulError

if TYPE_CHECKING:  # this module is imported before all slow ones: see `end_silently`
    from soul.evaluate.run.journal import Journal
    from soul.evaluate.run.settings import SampleRequest


class Interrupted(SoulError):
    """Ctrl-C or SIGTERM ended the run; the message says what is kept and how to go on."""

    exit_code: ClassVar[int] = 128 + signal.SIGINT


def end_silently() -> None:
    """From here on Ctrl-C ends the process at once, without a traceback. Call it before the slow imports.

    A process that ignores Ctrl-C, such as one in the background of a shell, goes on ignoring it. Inside a command's
    `run_command` Ctrl-C raises KeyboardInterrupt again.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interruptible(wanted: Sequence[SampleRequest], journal: Journal) -> Iterator[None]:
    """Wrap the work on a run's folder in this.

    Raises:
        Interrupted: in place of KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = len({item.key for item in wanted} & journal.samples.keys())
        raise Interrupted(
            f"{kept:,} of {len(wanted):,} samples are kept in {journal.path.parent}; run the same command to continue."
        ) from None
