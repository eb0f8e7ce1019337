"""Ctrl-C and SIGTERM end an evaluation with one line that says what is kept; exit codes: `soul.cli.error_border`."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from soul.errors import SoulError
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.settings import SampleRequest


class Interrupted(SoulError):
    """Ctrl-C or SIGTERM ended the run; the message says what is kept and how to continue."""

    exit_code: ClassVar[int] = 128 + signal.SIGINT


@contextmanager
def interruptible(wanted: Sequence[SampleRequest], journal: Journal) -> Iterator[None]:
    """Report an interruption of the work in this block.

    Raises:
        Interrupted: instead of KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        kept = len({request.key for request in wanted} & journal.samples.keys())
        raise Interrupted(
            f"{kept:,} of {len(wanted):,} samples are kept in {journal.path.parent}; run the same command to continue."
        ) from None
