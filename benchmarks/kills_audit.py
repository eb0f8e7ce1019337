"""Compare the files of a run that was killed and resumed with those of an unkilled run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from ditto.run import manifest
from ditto.run.checkpoint import PARTIAL, TRACKER, saved_steps
from soul.files.line_file import either_form, read_lines
from soul.files.trace_files import FOLDER, trace_files


def differences(run: Path, reference: Path, steps: int, kept: int) -> list[str]:
    """List what is wrong with a finished run; empty if nothing is.

    Args:
        run: folder of the run that was killed.
        reference: folder of an unkilled run with the same settings.
        steps: training steps of both.
        kept: number of checkpoints that they keep.
    """
    return [*_traces(run, reference, steps), *_metrics(run, reference), *_checkpoints(run, steps, kept)]


def _lines(path: Path) -> list[dict[str, Any]]:
    path = either_form(path)
    return [json.loads(line.text) for line in read_lines(path)] if path.exists() else []


def _traces(run: Path, reference: Path, steps: int) -> list[str]:
    wrong = []
    names = [sorted(f.name for f in trace_files(folder / FOLDER) if not f.live) for folder in (run, reference)]
    if names[0] != names[1]:
        wrong.append(f"files of traces: {sorted(set(names[0]) ^ set(names[1]))} are in one run only")
    for name in names[1]:
        ours, theirs = _lines(run / "traces" / name), _lines(reference / "traces" / name)
        if Counter(each["row"] for each in ours) != Counter(each["row"] for each in theirs):
            wrong.append(f"{name}: other rows than in the unkilled run")
        if len({each["session"] for each in ours}) != len(ours):
            wrong.append(f"{name}: a session appears twice")
    for step in range(1, steps + 1):
        versions = {each["model_version"] for each in _lines(run / "traces" / f"step_{step:06d}.jsonl")}
        if versions != {step - 1}:
            wrong.append(f"step {step}: sampled by the weights of steps {sorted(versions)} instead of {step - 1}")
    return wrong


def _metrics(run: Path, reference: Path) -> list[str]:
    wrong = []
    ours, theirs = _lines(run / "metrics.jsonl"), _lines(reference / "metrics.jsonl")
    if [each["step"] for each in ours] != [each["step"] for each in theirs]:
        wrong.append(f"metrics.jsonl: steps {[each['step'] for each in ours]}")
    known = {each["step"]: set(each) for each in theirs}
    for each in ours:
        keys = known.get(each["step"], set())
        if set(each) != keys:
            wrong.append(
                f"step {each['step']}: lacks {sorted(keys - set(each))}, has {sorted(set(each) - keys)} in addition"
            )
    return wrong


def _checkpoints(run: Path, steps: int, kept: int) -> list[str]:
    wrong = []
    expected = list(range(steps - kept + 1, steps + 1))
    if saved_steps(run) != expected:
        wrong.append(f"checkpoints of steps {saved_steps(run)} instead of {expected}")
    if (run / TRACKER).read_text() != str(steps):
        wrong.append(f"the tracker names step {(run / TRACKER).read_text()}")
    for step in saved_steps(run):
        try:
            manifest.check(run / f"global_step_{step}")
        except manifest.DamagedCheckpoint as error:
            wrong.append(str(error))
    leftovers = [path.name for path in run.iterdir() if path.name == PARTIAL or path.name.endswith(".damaged")]
    return [*wrong, *(f"{name} is left" for name in leftovers)]
