"""The head of the report: the model, its judges, the settings, the first numbers and the warnings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from soul.evaluate.numbers.results import Results
from soul.evaluate.numbers.set_warnings import grouped
from soul.evaluate.report.markup import Markup, element, join
from soul.evaluate.report.set_detail import samples_link, small_table
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables import notes, run_table
from soul.judge.call.usage import Usage, total
from soul.judge.ledger import money

_SAMPLING = ("reasoning_effort", "temperature", "top_p", "max_output_tokens", "seed")


def overview(run: EvaluationRun, results: Results) -> Markup:
    """The head of the report."""
    policy = run.settings["policy"]
    wanted, finished = sum(run.wanted.values()), len(run.samples)
    rows = "all rows" if run.limit is None else f"{run.limit:,} rows"
    repeats = f", {run.n} samples per row" if run.n > 1 else ""
    facts = [
        ("Endpoint", _address(policy)),
        ("Sampling", _sampling(policy)),
        *notes.models_by_role(run, results).items(),
        ("Rows", f"{rows} of each set, seed {run.seed}{repeats}"),
        ("Samples", f"{finished:,}" if finished == wanted else f"{finished:,} of {wanted:,}: not finished"),
        ("Last sample", run.ended.strftime("%Y-%m-%d %H:%M UTC")),
        *([("Episodes of", run.settings["episodes_of"])] if "episodes_of" in run.settings else []),
    ]
    listed = [element("div", element("dt", name), element("dd", value)) for name, value in facts]
    return join(
        element("p", "SOUL evaluation", class_="kind"),
        element("h1", run.name),
        element("dl", *listed, class_="facts"),
        _first_numbers(results, run.judge_checks.usage),
        _warnings(results),
        *(element("p", text, class_="note") for text in notes.warnings(run, results)),
        _settings(run.settings),
    )


def _first_numbers(results: Results, judge_tests: Usage) -> Markup:
    macro, sets = results.macro, list(results.sets.values())
    samples, invalid = sum(s.samples for s in sets), sum(s.invalid for s in sets)
    score, _, interval = run_table.score(macro.mean, macro.interval).partition(" ")
    sets_text = f"{macro.sets}" if macro.sets == macro.of else f"{macro.sets} of {macro.of}"
    name = f"macro average of {sets_text} sets" if macro.of > 1 else next(iter(results.sets), "no set")
    cost = money(total([judge_tests, *(count for s in sets for count in s.usage.values())]))
    share = run_table.invalid_share(invalid, samples, None)
    shown = ((score, f"{name} {interval}".strip()), (share, "without a verdict"), (cost, "policy and judges"))
    tiles = [element("div", element("dd", value), element("dt", label)) for value, label in shown]
    return element("dl", *tiles, class_="tiles")


def _warnings(results: Results) -> Markup | None:
    """Reasons to doubt a score, with links to the samples to check."""
    ordered = {name: results.sets[name] for name in run_table.ordered(list(results.sets))}
    lines = []
    for warning, by_set in grouped(ordered).items():
        links = [join(element("a", name, href=samples_link(name)), f" ({detail})") for name, detail in by_set.items()]
        listed = [join(", " if place else None, link) for place, link in enumerate(links)]
        lines.append(element("p", element("strong", f"{warning.title}: "), *listed, f". {warning.advice}"))
    return element("section", *lines, class_="warnings", aria_label="Warnings") if lines else None


def _settings(settings: Mapping[str, Any]) -> Markup:
    shown = ("policy", "roles", "jury", "by_task", *(() if settings["jury"] else ("jury_reward",)))
    others = {key: value for key, value in settings.items() if key not in shown and value}
    return element(
        "details",
        element("summary", "Settings"),
        small_table(None, ("role", "model", "endpoint", "sampling"), _endpoints(settings)),
        element("pre", json.dumps(others, indent=1, ensure_ascii=False)) if others else None,
        class_="settings",
    )


def _endpoints(settings: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    named = [
        ("policy", settings["policy"]),
        *settings["roles"].items(),
        *(("jury", endpoint) for endpoint in settings["jury"]),
        *((f"judge of {task}", endpoint) for task, endpoint in settings["by_task"].items()),
    ]
    return [(name, model["model"], _address(model), _sampling(model)) for name, model in named]


def _address(endpoint: Mapping[str, Any]) -> str:
    """The address of the model, or what was served if the run served it itself."""
    known = {"model", "base_url", *_SAMPLING}
    served = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in endpoint.items() if key not in known)
    return endpoint["base_url"] or f"served for this run: {served or endpoint['model']}"


def _sampling(endpoint: Mapping[str, Any]) -> str:
    chosen = [f"{key.replace('_', ' ')} {endpoint[key]}" for key in _SAMPLING if endpoint.get(key) is not None]
    return ", ".join(chosen) or "the endpoint's defaults"
