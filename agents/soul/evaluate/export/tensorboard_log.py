"""Write a run's results as a TensorBoard event file: scalars by set, and the table as text.

This uses TensorBoard's own writer, which needs neither torch nor TensorFlow.
"""

from __future__ import annotations

import time
from typing import Any

from soul.evaluate.export.options import ExportOptions
from soul.evaluate.export.scalars import scalars
from soul.evaluate.numbers.results import Results
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.table import markdown

PREFIX = "soul"


def write(run: EvaluationRun, results: Results, options: ExportOptions) -> str:
    """Add the results at the options' step to the logs in a folder, in a new file. Returns the folder."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = str(options.out or run.folder / "tensorboard")
    writer = EventFileWriter(folder)
    summaries: list[Any] = [scalar_pb(f"{PREFIX}/{name}", value) for name, value in scalars(results).items()]
    try:
        for summary in (*summaries, text_pb(f"{PREFIX}/table", markdown(results))):
            writer.add_event(Event(wall_time=time.time(), step=options.step or 0, summary=summary))
    finally:
        writer.close()
    return folder
