"""One evaluation as the pages keep it: its samples as sessions, and its results as the terminal shows them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.evaluate.numbers.results import Results, breakdowns, summarise_run
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.run.journal import FILE as JOURNAL
from soul.evaluate.run.run_folder import CHOSEN, EvaluationRun
from soul.evaluate.tables import run_table
from soul.judge.call.usage import total
from soul.judge.ledger import money, numbers
from soul.metrics.intervals import FEWEST
from soul.pages.catalogue import RunView
from soul.pages.facts import stamp
from soul.pages.index import OF_ROW, as_columns
from soul.pages.session_row import SessionRow
from soul.pages.sessions import NoSession, contains, searched, shown
from soul.record import SessionRecord
from soul.shown_answers import Answers, answers_of

SHOWN_CHARACTERS = 80  # of an answer or a last turn, in the list
_SAMPLING = ("reasoning_effort", "temperature", "top_p", "max_output_tokens", "seed")
# Readable names for kinds and values of groups: records hold codes such as "ood" or "first_order_no_tom".
_NAMES = json.loads(Path(__file__).with_name("group_names.json").read_text(encoding="utf-8"))


class EvaluationView(RunView):
    """An evaluation's folder.

    Samples are held in memory, because their results need whole records. A journal that grows is read again, but no
    more often than every tenth of the time is spent on it.

    Args:
        known: what the evaluation itself has at its end.
    """

    def __init__(self, folder: Path, known: tuple[EvaluationRun, Results] | None = None) -> None:
        super().__init__(folder)
        self._given = known
        self._next = 0.0  # time.monotonic() before which the folder is not read again
        self._samples: list[SessionRecord] = []
        self._answers: list[Answers] = []

    def _state(self) -> Any:
        late = time.monotonic() >= self._next
        return [stamp(self.folder / name) for name in (JOURNAL, CHOSEN)] if late else self._known

    def _numbers(self) -> dict[str, Any]:
        began = time.monotonic()
        run, results = self._given or (EvaluationRun.load(self.folder), None)
        results, self._given = results or summarise_run(run), None
        self._samples = [sample for name in run_table.ordered(list(results.sets)) for sample in run.by_set[name]]
        self._answers = answers_of(self._samples)
        found = overview(run, results)
        self._next = time.monotonic() + 10 * (time.monotonic() - began)
        return found

    def columns(self, after: int = 0, known: int | None = None) -> dict[str, Any]:
        now = self.overview(known)
        if "unchanged" in now:
            return {"revision": known, "reset": False, "columns": {}}
        columns = sample_columns(self._samples, self._answers)
        return {"revision": now["revision"], "reset": after > 0, "columns": columns}

    def session(self, number: int) -> dict[str, Any]:
        self.overview(None)
        if not 1 <= number <= len(self._samples):
            raise NoSession(f"sample {number} does not exist")
        return shown(self._samples[number - 1], self._answers[number - 1])

    def search(self, text: str, after: int = 0) -> dict[str, Any]:
        samples = self._samples
        return searched(range(after + 1, len(samples) + 1), lambda number: contains(samples[number - 1], text))


def sample_columns(samples: Sequence[SessionRecord], answers: Sequence[Answers]) -> dict[str, Any]:
    """Samples as columns: those of `soul.pages.index.COLUMNS`, and those that only a list of samples has."""
    records = (SessionRow.from_record(sample)._replace(file=sample.set) for sample in samples)
    rows = [(id_, 0, "eval", 0, *(getattr(row, name) for name in OF_ROW)) for id_, row in enumerate(records, 1)]
    own = {
        "sample": [sample.sample for sample in samples],
        "ended": [sample.draft.ended for sample in samples],
        "contentless": [int(sample.draft.contentless) for sample in samples],
        "target": [start_of(one.target) for one in answers],
        "given": [_given(sample, one) for sample, one in zip(samples, answers, strict=True)],
        "groups": [sample.groups for sample in samples],
    }
    return {**as_columns(rows), **own}


def start_of(text: str | None) -> str | None:
    """The beginning of a text, on one line."""
    return None if text is None else " ".join(text.split())[:SHOWN_CHARACTERS]


def _given(sample: SessionRecord, answers: Answers) -> str | None:
    """The answer that was read; for a task without one right answer, the policy's last turn."""
    if answers.target is not None or answers.given is not None:
        return start_of(answers.given)
    turns = [m["content"] for messages in (sample.draft.seats or {}).values() for m in messages]
    return start_of(turns[-1]) if turns else None


def overview(run: EvaluationRun, results: Results) -> dict[str, Any]:
    """The results of an evaluation: texts as the terminal has them, and the numbers behind them.

    Returns:
        {"facts", "tiles", "warnings", "cautions", "explanations", "settings", "titles", "published", "lines", "sets",
        "names"}: a line has "cells" and "published" as texts, and "mean", "interval", "bounds", "range" in its
        metric's own range; "sets" has for each set the numbers of results.json with its groups and its metric.
    """
    groups = breakdowns(run, results)
    published = run_table.columns_of(run.suite)
    ordered = {name: results.sets[name] for name in run_table.ordered(list(results.sets))}
    warnings = run_table.grouped(ordered).items()
    return {
        "facts": _facts(run, results),
        "tiles": _tiles(run, results),
        "warnings": [{"title": one.title, "advice": one.advice, "sets": sets} for one, sets in warnings],
        "cautions": run_table.cautions(run, results),
        "explanations": [_READING, *run_table.explanations(results)],
        "settings": {key: value for key, value in run.settings.items() if value},
        "titles": run_table.titles(results),
        "published": [{"model": column.model, "source": column.source} for column in published],
        "lines": [_line(line) for line in run_table.lines(results, published)],
        "sets": {name: _set(one, groups[name]) for name, one in ordered.items()},
        "names": _NAMES,
    }


_READING = (
    "Scores are the headline times 100, the card's scale. A bar is drawn on the range of its metric: 0 to 100, unless "
    f"another range is written below it. Intervals are 95 %, over rows; a dash stands for fewer than {FEWEST}. An "
    "average is the mean of its sets' means. Published numbers are those of the model card and the paper: they come "
    "from other judges and other rows, so they show what range to expect, and are not a strict comparison."
)


def _line(line: run_table.TableLine) -> dict[str, Any]:
    result = line.result
    name, metric = (result.name, result.headline) if isinstance(result, SetResult) else (None, None)
    numbers_of = {name: getattr(result, name) for name in ("mean", "interval", "bounds")}
    range_ = (metric.low, metric.high) if metric else (0.0, 1.0)
    texts = {"dimension": line.dimension, "cells": line.cells, "published": line.published}
    return {**texts, "set": name, **numbers_of, "range": range_}


def _set(result: SetResult, groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The numbers of a set: those of results.json without its rows, its groups, and what each role's calls took."""
    value = {key: part for key, part in result.to_json().items() if key != "per_row"}
    metric, reward = result.headline, result.reward
    roles = {"policy": result.policy, **{role: use for role, use in result.usage.items() if role != "policy"}}
    return {
        **value,
        "metric": {**value["metric"], "higher_is_better": metric.higher_is_better},
        "best": reward.high if reward.higher_is_better else reward.low,
        "worst": reward.worst,
        "best_of": value.get("best", {}),
        "warnings": [str(warning) for warning in run_table.warnings_of(result)],
        "groups": groups,
        "roles": {role: {**numbers(use), "cost": money(use)} for role, use in roles.items()},
    }


def _facts(run: EvaluationRun, results: Results) -> list[tuple[str, str]]:
    policy = run.settings["policy"]
    sampling = _named({key: policy[key] for key in _SAMPLING if policy.get(key) is not None})
    # The address of the model, or what was served if the run served it itself.
    served = _named({key: policy[key] for key in policy if key not in ("model", "base_url", *_SAMPLING)})
    wanted, finished = sum(run.wanted.values()), len(run.samples)
    rows = "all rows" if run.limit is None else f"{run.limit:,} rows"
    repeats = f", {run.n} samples per row" if run.n > 1 else ""
    return [
        ("Endpoint", policy["base_url"] or f"served for this run: {served or policy['model']}"),
        ("Sampling", sampling or "the endpoint's defaults"),
        *run_table.models_by_role(run, results).items(),
        ("Rows", f"{rows} of each set, seed {run.seed}{repeats}"),
        ("Samples", f"{finished:,}" if finished == wanted else f"{finished:,} of {wanted:,}: not finished"),
        ("Last sample", run.ended.strftime("%Y-%m-%d %H:%M UTC")),
        *([("Episodes of", run.settings["episodes_of"])] if "episodes_of" in run.settings else []),
    ]


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())


def _tiles(run: EvaluationRun, results: Results) -> list[tuple[str, str]]:
    macro, sets = results.macro, list(results.sets.values())
    samples, invalid = sum(s.samples for s in sets), sum(s.invalid for s in sets)
    score, _, interval = run_table.score(macro.mean, macro.interval).partition(" ")
    counted = f"{macro.sets}" if macro.sets == macro.of else f"{macro.sets} of {macro.of}"
    name = f"macro average of {counted} sets" if macro.of > 1 else next(iter(results.sets), "no set")
    cost = money(total([run.judge_checks.usage, *(count for s in sets for count in s.usage.values())]))
    share = run_table.invalid_share(invalid, samples, None)
    return [(f"{name} {interval}".strip(), score), ("without a verdict", share), ("policy and judges", cost)]
