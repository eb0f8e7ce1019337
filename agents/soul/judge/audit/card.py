"""Write the card of a judge: all that is known about how far it can be trusted, in one JSON file that reports read.

    soul judge card judge.model=NAME --out outputs/EVALUATION [--agreement FILE] [policy.model=NAME]

In the folder of an evaluation the file is `judge_card.<model>.json`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.text import Text

import soul
from soul.cli.arguments import existing_file
from soul.cli.error_border import Parser, reports_errors
from soul.errors import SoulError
from soul.files.json_object import read_object
from soul.files.whole_file import write_whole
from soul.judge import Judge
from soul.judge.audit import canaries
from soul.judge.audit.biases import Effect, measure, table, with_judge
from soul.judge.ledger import money, numbers
from soul.judge.mirrorbench_judgments import PAIRWISE_INSTRUCTIONS
from soul.table import terminal

PREFIX = "judge_card."


class BadCard(SoulError):
    """A file is not what it should be: the card of a judge, or the result of `soul judge agree`."""


def make(
    judge: Judge, effects: Sequence[Effect], outcomes: Sequence[canaries.CanaryResult], agreement: dict[str, Any] | None
) -> dict[str, Any]:
    """The card, from the tests of a judge: their numbers, and `summary`, which says in words what reports show."""
    endpoint, usage = judge.endpoint, numbers(judge.usage)
    rubrics = hashlib.sha256("".join(map(canaries.instructions, canaries.SCENARIOS)).encode()).hexdigest()[:8]
    date, seconds = datetime.now(UTC).isoformat(timespec="seconds"), usage.get("latency_p50_s", 0.0)
    failed = f"{usage['failures']:.0f} of {usage['calls']:.0f} failed"
    summary = {
        "judge": f"{endpoint.name}, {date[:10]}",
        "versions": f"soul {soul.__version__}, rubrics {rubrics}, {PAIRWISE_INSTRUCTIONS.id}",
        "agreement with people": ", ".join(map(str, _estimates(agreement))) if agreement else "not measured",
        "biases": ", ".join(str(one) for one in effects if one.found) or "none found",
        "consistency": ", ".join(map(str, effects[-2:])),
        "known tricks": "; ".join(canaries.problems(outcomes)) or "none fooled it",
        "calls": f"{failed}; {money(judge.usage)}, {seconds:.2f} s a call (median)",
    }
    return {
        "date": date,
        "judge": endpoint.model_dump(include={"model", "reasoning_effort", "temperature"}),
        "summary": summary,
        "agreement": agreement,
        "biases": [asdict(one) for one in effects],
        "canaries": canaries.to_json(outcomes),
        "usage": usage,
    }


def cards_of(folder: Path) -> dict[str, str]:
    """The cards in the folder of an evaluation, as its report shows them: title -> text. Raises BadCard."""
    texts, remedy = {}, "Delete it, or make it again with soul judge card."
    for path in sorted(folder.glob(f"{PREFIX}*.json")):
        summary = read_object(path, BadCard, remedy).get("summary")
        if not isinstance(summary, dict) or "judge" not in summary:
            raise BadCard(f"{path} is not the card of a judge. {remedy}")
        texts[f"Card of {summary.pop('judge')}"] = "; ".join(f"{name}: {text}" for name, text in summary.items())
    return texts


def _estimates(result: Mapping[str, Any], name: str = "") -> Iterator[Effect]:
    """The first measure of every metric in a result of `soul judge agree`: the judge against people."""
    for key, value in result.items():
        if not isinstance(value, Mapping) or key == "people":
            continue
        if {"value", "low", "high"} <= value.keys():
            interval = None if value["low"] is None else (value["low"], value["high"])
            yield Effect(f"{name} {key}".strip(), (-1.0, 1.0), value["value"], interval)
            return
        yield from _estimates(value, name if key in ("metrics", "measures", "correlations") else f"{name} {key}")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul judge card", description=__doc__)
    parser.add_argument("settings", nargs="*", help="section.key=value")
    parser.add_argument("--out", type=Path, required=True, help="a file, or the folder of an evaluation")
    parser.add_argument("--agreement", type=existing_file, help="the result of: soul judge agree --json FILE")
    args, remedy = parser.parse_args(arguments), "Give the file of: soul judge agree --json FILE."
    agreement = read_object(args.agreement, BadCard, remedy) if args.agreement else None
    if agreement is not None and not any(_estimates(agreement)):
        raise BadCard(f"{args.agreement} has no measure of agreement. {remedy}")
    both = with_judge(args.settings, lambda judge: asyncio.gather(measure(judge), canaries.run(judge)))
    (effects, outcomes), judge = asyncio.run(both)
    card = make(judge, effects, outcomes, agreement)
    terminal().print(table(effects), *(Text(f"{name}: {text}") for name, text in card["summary"].items()), sep="\n")
    name = re.sub(r"[^\w.-]+", "-", judge.endpoint.model)
    path = args.out / f"{PREFIX}{name}.json" if args.out.is_dir() else args.out
    write_whole(path, json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    print(f"{path}: soul report shows it, if it is in the folder of an evaluation")
