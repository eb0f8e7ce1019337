"""The names of a training run's trace files.

    traces/step_000007.jsonl          sessions of step 7, written whole; step_000007.1.jsonl is a further part of it
    traces/step_000007.jsonl.gz       the same, packed (line_file.py), where it is larger than 16 MB
    traces/val_000005.jsonl           sessions of the validation after step 5
    traces/live/step_000007.91.jsonl  sessions of step 7 so far, from one process

Lines are appended to a live file while its step runs, so its last line may be incomplete. The file is removed when the
step ends.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FOLDER, LIVE = "traces", "live"
_FINAL = re.compile(r"(step|val)_(\d+)(?:\.\d+)?\.jsonl(?:\.gz)?")
_LIVE = re.compile(r"(step|val)_(\d+)\.[\w.-]+\.jsonl")


@dataclass(frozen=True)
class TraceFile:
    """A file that exists.

    Attributes:
        name: relative to the folder of the traces.
        split: "step" or "val".
        live: its step still runs.
    """

    path: Path
    name: str
    split: str
    step: int
    live: bool
    stat: os.stat_result


def trace_files(traces: Path) -> list[TraceFile]:
    """The trace files of a run, validations and steps in order, finished ones before those of the running step."""
    live = _named(traces, f"{LIVE}/", _LIVE)
    return [*sorted(_named(traces, "", _FINAL), key=_order), *sorted(live, key=_order)]


def finished_files(traces: Path, split: str) -> list[TraceFile]:
    """The files of finished steps ("step") or of validations ("val"), in order."""
    return [file for file in trace_files(traces) if file.split == split and not file.live]


def _named(traces: Path, prefix: str, pattern: re.Pattern[str]) -> Iterator[TraceFile]:
    try:
        entries = list(os.scandir(traces / prefix))
    except OSError:  # not there, no folder, or not ours to read: a run without traces
        return
    for entry in entries:
        if match := pattern.fullmatch(entry.name):
            with suppress(OSError):  # the step ended: its live file is gone
                stat, split, step = entry.stat(), match.group(1), int(match.group(2))
                yield TraceFile(Path(entry.path), prefix + entry.name, split, step, bool(prefix), stat)


def _order(file: TraceFile) -> tuple[int, bool, str]:
    return file.step, file.split == "step", file.name
