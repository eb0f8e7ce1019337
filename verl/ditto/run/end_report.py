"""The report at the end of a run, `<run>/report.html`: curves, and the most telling sessions of each step.

It is made from what the run left on the disk (`soul.view.export`). A run never fails because of it, and never waits for
it without end: the index of the traces needs locks, and a network file system may hang on them.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from soul.errors import one_line
from soul.view.export import write_run_report

logger = logging.getLogger(__name__)

WAIT_S = 300.0  # for the report of a run with 4 GB of traces it takes 30 s


def write_end_report(folder: Path, wait_s: float = WAIT_S) -> None:
    """Write the report of a run, and log where it is or why there is none."""
    worker = threading.Thread(target=_write, args=(folder,), name="end report", daemon=True)
    worker.start()
    worker.join(wait_s)
    if worker.is_alive():
        logger.warning("%s: no report after %.0f s; soul view %s shows the run.", folder, wait_s, folder)


def _write(folder: Path) -> None:
    try:
        logger.info("report of the run: %s", write_run_report(folder))
    except Exception as error:  # noqa: BLE001 - a run must not fail because of its report
        logger.warning("%s: the report could not be written (%s); soul view shows the run.", folder, one_line(error))
