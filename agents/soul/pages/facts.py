"""The facts about a training run or an evaluation that a list of runs shows, read from the small files of its folder.

Traces and journals are never read, so the facts of a hundred runs take a moment. `soul show` and the page use the same.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from soul.errors import SoulError, one_line
from soul.files.folder_lock import is_held
from soul.files.json_object import read_object
from soul.files.metrics_file import NAME as METRICS
from soul.files.metrics_file import read_metrics
from soul.files.trace_files import FOLDER as TRACES
from soul.files.trace_files import trace_files
from soul.metrics.intervals import ANY, FEWEST, Interval, t_quantile
from soul.pages.training_numbers import range_of
from soul.pages.verdict import verdict

Kind = Literal["training", "evaluation"]
State = Literal["running", "stale", "finished", "failed", "stopped"]
STALE_S = 15 * 60.0  # a run that writes nothing for so long may hang
POINTS = 60  # of a curve
REPORT, USAGE = "report.html", "usage.json"
SETTINGS, CHOSEN, JOURNAL = "settings.json", "chosen.json", "samples.jsonl"  # of an evaluation (soul.evaluate.run)
_CURVES = {
    "draft": "ditto/reward_draft",
    "refined": "ditto/reward_refined",
    "validation": r"val-core/[^/]+/reward/mean@\d+",
    "loss": "train/loss",  # of supervised fine-tuning
}
_SECONDS = ("timing_s/step", "timing_s/testing")
RUN_FILE, FAILURE = "run.json", "failure.json"
REWRITTEN = "The next start of the training writes it again."
OUTAGE = 0.05  # share of a step's sessions that lost a judge, from which on it is an event


class NotARun(SoulError):
    """A folder is neither that of a training run nor that of an evaluation, or its files are damaged."""


class TrainingFiles(NamedTuple):
    """The content of a training run's small files."""

    folder: Path
    run: dict[str, Any]  # run.json and failure.json; {} without a readable one
    failure: dict[str, Any]
    metrics: dict[int, dict[str, float]]  # step -> its numbers, in the order of the steps
    problems: list[str]  # what cannot be read

    @classmethod
    def read(cls, folder: Path) -> TrainingFiles:
        """Read them."""
        problems: list[str] = []

        def read(name: str, reader: Callable[[Path], dict[Any, Any]]) -> dict[Any, Any]:
            try:
                return reader(folder / name)
            except FileNotFoundError:
                return {}
            except (SoulError, OSError) as error:
                problems.append(one_line(error))
                return {}

        run, failure = (read(name, lambda path: read_object(path, NotARun, REWRITTEN)) for name in (RUN_FILE, FAILURE))
        return cls(folder, run, failure, dict(sorted(read(METRICS, read_metrics).items())), problems)

    @property
    def resumed(self) -> list[tuple[int, float]]:
        """Step and time of each resume."""
        return [(one["step"], one["time"]) for one in self.run.get("resumed", ())]

    def series(self) -> dict[str, Any]:
        """{"steps", "series": metric -> its values, None where a step has none}."""

        def known(value: float | None) -> float | None:
            return value if value is not None and math.isfinite(value) else None

        names = sorted(set().union(*self.metrics.values()) - {"step"})
        series = {name: [known(numbers.get(name)) for numbers in self.metrics.values()] for name in names}
        return {"steps": list(self.metrics), "series": series}

    def events(self) -> list[dict[str, Any]]:
        """{"step", "kind", "text"} of resumes, checkpoints, outages, alarms, and of the run's end, by step."""
        found = [(step, "resume", f"resumed after step {step}") for step, _ in self.resumed]
        found += [(step, "checkpoint", f"checkpoint global_step_{step}") for step in checkpoints(self.folder)]
        before: Mapping[str, float] = {}
        for step, numbers in self.metrics.items():
            if (lost := numbers.get("judge/failure_share", 0.0)) >= OUTAGE:
                found.append((step, "outage", f"a judge failed in {lost:.0%} of the sessions"))
            raised = [name for name in numbers if name.startswith("alarm/") and numbers[name] and not before.get(name)]
            found += [(step, "alarm", name.removeprefix("alarm/")) for name in raised]
            before = numbers
        if self.failure:  # after the last step; if the run was resumed since, at that step
            since = [step for step, time in self.resumed if time > self.failure["time"]]
            step = since[0] if since else max(self.metrics, default=0)
            found.append((step, "outage", f"the run ended: {self.failure.get('cause')}"))
        return [dict(zip(("step", "kind", "text"), one, strict=True)) for one in sorted(found, key=itemgetter(0))]


def stamp(path: Path) -> tuple[int, int, int]:
    """The facts that change when a file does; zeros without the file."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def checkpoints(folder: Path) -> list[int]:
    """The steps of the checkpoints in a run's folder."""
    numbers = (path.name.removeprefix("global_step_") for path in folder.glob("global_step_*"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def described(names: Iterable[str]) -> dict[str, str]:
    """Metric -> its meaning in docs/metrics.md, from which metric_texts.json is made; of known metrics."""
    texts = json.loads((Path(__file__).parent / "metric_texts.json").read_text(encoding="utf-8"))
    known = [(re.compile(re.sub("<[a-z]+>", ".+", name)), text) for name, text in reversed(texts.items())]
    return {name: text for name in names for pattern, text in known if pattern.fullmatch(name)}


@dataclass(frozen=True)
class RunFacts:
    """The facts about one run.

    Attributes:
        name: of the folder, or of the evaluated model.
        state: "running": its lock is held; "stale": the same, but it wrote nothing for STALE_S; "failed": it left a
            cause; "stopped": it ended before its last step or sample.
        changed: when the run wrote its newest file, in unix time.
        done: last step, or number of samples in results.json, None without it; `total`: of the whole run.
        score: mean reward of the last step's drafts, or the macro average of an evaluation; `interval`: 95 %.
        seconds: in steps and validations, or from the last start of an evaluation to its last sample.
        cost_usd: of all calls; `unpriced`: the price of some of them is unknown.
        cause: why it failed, or which file is damaged.
        alarms: name -> first step that raised it.
        last: name of a curve -> its last value.
        curves: "draft", "refined", "validation", "loss" -> at most POINTS means over equal spans of steps.
    """

    kind: Kind
    name: str
    state: State
    changed: float
    done: int | None
    total: int | None
    score: float | None
    interval: Interval | None
    seconds: float | None
    cost_usd: float | None
    unpriced: bool
    tasks: Sequence[str]
    cause: str = ""
    objective: str = ""
    verdict: str = ""
    alarms: Mapping[str, int] = field(default_factory=dict)
    checkpoints: Sequence[int] = ()
    last: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


def kind_of(place: Path) -> Kind | None:
    """The kind of run in this folder; None if there is none."""
    if any((place / name).is_file() for name in (METRICS, RUN_FILE)) or trace_files(place / TRACES):
        return "training"
    return "evaluation" if all((place / name).is_file() for name in (SETTINGS, CHOSEN, JOURNAL)) else None


def facts(place: Path) -> RunFacts:
    """The facts about the run in this folder; raises NotARun if there is none, or its files are damaged."""
    kind = kind_of(place)
    if kind is None:
        raise NotARun(f"{place} has no training run ({METRICS}, {TRACES}/) and no evaluation ({CHOSEN}, {JOURNAL}).")
    try:
        return _training(place) if kind == "training" else _evaluation(place)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotARun(f"{place}: a file of the run is damaged ({type(error).__name__}: {error}).") from None


def bucketed(values: Sequence[float | None], count: int) -> list[float | None]:
    """At most so many means over equal spans; None for a span without values."""
    count = min(count, len(values))
    spans = (values[len(values) * i // count : len(values) * (i + 1) // count] for i in range(count))
    known = ([value for value in span if value is not None] for span in spans)
    return [statistics.fmean(span) if span else None for span in known]


def _training(place: Path) -> RunFacts:
    files = TrainingFiles.read(place)
    steps, run, failure, usage = files.metrics, files.run, files.failure, _object(place / USAGE)
    keys = sorted(set().union(*steps.values()))

    def column(pattern: str) -> dict[int, float]:
        """Step -> the mean of its metrics with such a name."""
        named = [key for key in keys if re.fullmatch(pattern, key)]
        known = {step: [numbers[key] for key in named if key in numbers] for step, numbers in steps.items()}
        return {step: statistics.fmean(values) for step, values in known.items() if values}

    columns = {name: values for name, pattern in _CURVES.items() if (values := column(pattern))}
    drafts, last = columns.get("draft", {}), {name: list(values.values())[-1] for name, values in columns.items()}
    alarms: dict[str, int] = {}
    for event in files.events():
        if event["kind"] == "alarm":
            alarms.setdefault(event["text"], event["step"])
    total, done = (run.get("config") or {}).get("trainer", {}).get("total_training_steps"), max(steps, default=0)
    written, names = _changed(place, METRICS), [name for name in str(run.get("task") or "").split(",") if name]
    traces = [file.stat.st_mtime for file in trace_files(place / TRACES)]
    changed = max([_changed(place, METRICS, RUN_FILE, FAILURE, USAGE), *traces])
    ended = done >= total if total else _changed(place, REPORT) >= written > 0
    started = max([run.get("started", 0.0), *(time for _, time in files.resumed)])  # for the last time
    state = _state(is_held(place), changed, failure.get("time", 0.0) > started, ended)
    seconds = [numbers[name] for numbers in steps.values() for name in _SECONDS if name in numbers]
    return RunFacts(
        kind="training",
        name=place.resolve().name,
        state=state,
        changed=changed,
        done=done,
        total=total,
        score=last.get("draft"),
        interval=_interval(steps[max(drafts)], names) if drafts else None,
        seconds=math.fsum(seconds) if seconds else None,
        **_cost([usage["total"]] if usage else []),
        tasks=names,
        cause=str(failure.get("cause", "")) if state == "failed" else next(iter(files.problems), ""),
        objective=str(run.get("objective") or ""),
        verdict=verdict(list(drafts.values()), column("ditto/gap"), alarms) if drafts else "",
        alarms=alarms,
        checkpoints=checkpoints(place),
        last=last,
        curves={name: bucketed([values.get(step) for step in steps], POINTS) for name, values in columns.items()},
    )


def _evaluation(place: Path) -> RunFacts:
    settings, chosen, results = (_object(place / name) for name in (SETTINGS, CHOSEN, "results.json"))
    wanted = {name: len(keys) for name, keys in chosen["samples"].items()}
    sets, macro = results.get("sets", {}), results.get("averages", {}).get("macro", {})
    done = {name: sets.get(name, {}).get("samples", 0) for name in wanted}
    tests = [results["judge_tests"]["usage"]] if "judge_tests" in results else []
    changed, seconds = _changed(place, JOURNAL, CHOSEN), _changed(place, JOURNAL) - _changed(place, CHOSEN)
    return RunFacts(
        kind="evaluation",
        name=str(settings["policy"]["model"]),
        state=_state(is_held(place), changed, False, all(done[name] >= wanted[name] for name in wanted)),
        changed=changed,
        done=sum(done.values()) if results else None,
        total=sum(wanted.values()),
        score=macro.get("mean"),
        interval=tuple(macro["interval"]) if macro.get("interval") else None,
        seconds=seconds if seconds > 0 else None,
        **_cost([*(usage for one in sets.values() for usage in one["usage"].values()), *tests]),
        tasks=list(wanted),
    )


def _state(held: bool, changed: float, failed: bool, ended: bool) -> State:
    if held:
        return "stale" if time.time() - changed > STALE_S else "running"
    return "failed" if failed else "finished" if ended else "stopped"


def _interval(numbers: Mapping[str, float], names: Sequence[str]) -> Interval | None:
    """The 95 % interval of the drafts' reward over a step's prompts: Student's t, cut at the range of a single task."""
    prompts, error = int(numbers.get("ditto/groups", 0)), numbers.get("ditto/reward_draft_error")
    if prompts < FEWEST or not error:
        return None
    (low, high), half = range_of(names[0]) if len(names) == 1 else ANY, t_quantile(prompts - 1) * error
    return max(low, numbers[_CURVES["draft"]] - half), min(high, numbers[_CURVES["draft"]] + half)


def _cost(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    cost = sum(one["cost_usd"] for one in usages) if usages else None
    return {"cost_usd": cost, "unpriced": any(one["unpriced"] for one in usages)}


def _changed(place: Path, *names: str) -> float:
    """When the newest of these files changed; 0 if there are none."""
    return max([path.stat().st_mtime for path in map(place.joinpath, names) if path.exists()], default=0.0)


def _object(path: Path) -> dict[str, Any]:
    """The object in a file; {} if it is missing, damaged or being written."""
    try:
        return read_object(path, SoulError, "")
    except (OSError, SoulError):
        return {}
