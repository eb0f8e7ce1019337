"""`soul merge RUN [RUN ...] --out DIR`: put the folders of one training, written on several nodes, into one.

    soul merge node1/run node2/run --out whole

Traces of finished steps and validations, metrics, the judge's answers and bills are merged, and run.json of the last
start is copied. A session that several folders hold is kept once. Checkpoints stay where they are, and sessions of a
running step are left out. Nothing in the folders is changed; torn last lines are left out.

Two folders contradict each other if they hold a step with different numbers, or a session with different contents: one
of them went on after the checkpoint from which the other was resumed. Such folders are refused. Numbers of a step that
only one of them holds are kept: a validation adds its numbers to the line of a finished step.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from soul.cli.arguments import existing_folder, output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.files.json_object import read_object
from soul.files.line_file import is_packed, read_lines, write_lines
from soul.files.metrics_file import NAME as METRICS
from soul.files.metrics_file import lines_by_step
from soul.files.trace_files import FOLDER, trace_files
from soul.judge.merge import BadMerge, merge_judges, merged_folder
from soul.record import SessionRecord, digest

RUN_FILE = "run.json"
IDENTITY = ("objective", "task", "seed")  # keys of run.json that the folders of one run share
_REMEDY = (
    "One of them went on after the checkpoint from which the other was resumed. Take those steps out of its folder "
    "(lines of metrics.jsonl, files in traces/), then merge again."
)


class TraceMerge:
    """Merges the trace files of several runs.

    Attributes:
        sessions: how many were written.
        repeated: how many were left out, because they were written already.
    """

    def __init__(self, runs: Sequence[Path], out: Path) -> None:
        self.sessions = self.repeated = 0
        self._out = out
        self._sources: defaultdict[str, list[Path]] = defaultdict(list)  # name of the plain form -> files
        for run in runs:
            for file in trace_files(run / FOLDER):
                if not file.live:
                    self._sources[file.name.removesuffix(".gz")].append(file.path)

    @property
    def files(self) -> int:
        """How many files are written."""
        return len(self._sources)

    def write(self) -> None:
        """Write the merged files, packed where one of their sources is.

        Raises:
            BadMerge: a session has other contents in another file. BadRecord: a line is no session record.
        """
        for name, files in self._sources.items():
            packs = any(map(is_packed, files))
            write_lines(self._out / FOLDER / name, self._new_lines(files), 0.0 if packs else None)

    def _new_lines(self, files: Sequence[Path]) -> Iterator[str]:
        seen: dict[str, tuple[str, Path]] = {}  # session -> hash of its line, the file that has it
        for file in files:
            for number, stored in enumerate(read_lines(file), 1):
                line = stored.text.decode().removesuffix("\n")
                mark = digest(line)
                session = SessionRecord.from_line(line, f"{file}: line {number}").session or mark
                if session not in seen:
                    seen[session] = mark, file
                    self.sessions += 1
                    yield line
                    continue
                known, where = seen[session]
                if known != mark:
                    raise BadMerge(f"Session {session} has other contents in {where} than in {file}. {_REMEDY}")
                self.repeated += 1


def merge_metrics(runs: Sequence[Path]) -> dict[int, str]:
    """The lines of metrics of several runs, by step.

    Raises:
        BadMerge: runs have other numbers for a step. BadMetrics: a line is no line of metrics.
    """
    merged: dict[int, tuple[str, Path]] = {}
    for path in (run / METRICS for run in runs):
        whole = [line.text for line in read_lines(path)] if path.is_file() else []
        for step, line in lines_by_step(whole, path).items():
            known, where = merged.setdefault(step, (line, path))
            numbers, more = json.loads(known), json.loads(line)
            if any(numbers[key] != more[key] for key in numbers.keys() & more.keys()):
                raise BadMerge(f"Step {step} has other numbers in {where} than in {path}. {_REMEDY}")
            if more.keys() - numbers.keys():
                merged[step] = json.dumps(numbers | more), path
    return {step: line for step, (line, _) in sorted(merged.items())}


def last_start(runs: Sequence[Path]) -> Path | None:
    """The run.json of the last start; None if no folder has one.

    Raises:
        BadMerge: the folders are of different runs.
    """
    files = {file: _read_run(file) for run in runs if (file := run / RUN_FILE).is_file()}
    for key in IDENTITY:
        if len({json.dumps(content.get(key)) for content in files.values()}) > 1:
            values = ", ".join(f"{content.get(key)!r} in {file}" for file, content in files.items())
            raise BadMerge(f"These are folders of different runs: {key} is {values}. Merge each run by itself.")
    return max(files, key=lambda file: len(files[file].get("resumed") or ()), default=None)


def _read_run(file: Path) -> dict[str, Any]:
    return read_object(file, BadMerge, "Copy it again, or move it away; a run can be merged without it.")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul merge", description=__doc__)
    parser.add_argument("runs", nargs="+", type=existing_folder, metavar="RUN", help="folder of a training")
    parser.add_argument("--out", type=output_folder, required=True, metavar="DIR", help="new folder to write to")
    args = parser.parse_args(arguments)
    with merged_folder(args.out) as out:
        run_file, metrics, traces = last_start(args.runs), merge_metrics(args.runs), TraceMerge(args.runs, out)
        if not metrics and not traces.files:
            raise BadMerge("No folder has traces or metrics: name the folders of a run (OUTPUT_DIR/EXPERIMENT_NAME).")
        traces.write()
        if metrics:
            write_lines(out / METRICS, metrics.values())
        if run_file is not None:
            shutil.copyfile(run_file, out / RUN_FILE)
        judge = merge_judges(args.runs, out)
    sessions = f"{traces.sessions:,} sessions, {traces.repeated:,} left out as another file holds them"
    print(f"{args.out}: {len(metrics):,} steps of metrics; {traces.files:,} trace files with {sessions}; {judge}")


if __name__ == "__main__":
    sys.exit(main())
