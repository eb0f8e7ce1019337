"""Test the judges of an evaluation with replies that deserve nothing, once for each endpoint.

A judge that falls for them, or cannot tell a good reply from a weak one, gives scores that look like any others. Runs
in the same output folder share the results. At every later start the judge grades twelve honest replies again: if it
has changed, scores of then and now cannot be compared. The calls count in the budget of the run that makes them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from soul.errors import SoulError
from soul.evaluate.run.settings import answer_settings
from soul.files.json_object import read_object
from soul.files.whole_file import write_whole
from soul.judge import Endpoint, Gateway, GatewaySettings, Usage
from soul.judge.audit import canaries, drift
from soul.judge.audit.canaries import CANARIES
from soul.judge.roles import ROLES

FILE = "judge_checks.json"
_CASES = hashlib.sha256(repr(CANARIES).encode()).hexdigest()[:8]
_PATIENCE_S = 60.0  # for one reply: a judge that takes longer has no score for it


class BadJudgeChecks(SoulError):
    """A file of results is damaged."""


class JudgeChecks(NamedTuple):
    """The content of a run's `FILE`: all known results, and the usage of the tests that this run made."""

    checks: list[dict[str, Any]]
    usage: Usage

    @classmethod
    def read(cls, folder: Path) -> JudgeChecks:
        """Read the file of a run's folder; without one, there are no checks."""
        path = folder / FILE
        if not path.is_file():
            return cls([], Usage())
        content = read_object(path, BadJudgeChecks, "Delete it: the next evaluation tests its judges again.")
        usage = content.get("usage")
        return cls(list(content.get("checks", ())), Usage.from_json(usage) if usage else Usage())


def check_judges(
    settings: GatewaySettings, judges: Sequence[Endpoint], folder: Path, spent_usd: float, console: Console
) -> None:
    """Test the judges that no run in the same output folder has tested, and let the others grade known replies again.

    The results are written to the run's `FILE`.

    Args:
        spent_usd: what the run has spent already, without tests.

    Raises:
        BadJudgeChecks: a file of earlier results is damaged.
    """
    known, (checks, usage) = _known_checks(folder), JudgeChecks.read(folder)
    for endpoint in judges:
        asked = answer_settings(endpoint)
        mine, beside = _of(checks, asked), _of(known, asked)
        # The oldest grades are the reference. A file of an earlier version has none.
        firsts = [one["first"] for one in beside if drift.is_reference(one.get("first"))]
        first = min(firsts, key=lambda one: str(one["date"]), default=None)
        with console.status(f"{endpoint.model} judges replies that are known"):
            spent = spent_usd + usage.cost_usd
            outcomes, now, used = asyncio.run(_graded(settings, endpoint, spent, bool(beside)))
        usage.merge(used)
        problems = list(beside[0]["problems"]) if beside else canaries.problems(outcomes)
        changed = drift.compare(endpoint.model, first, now)[1] if first else ""
        changed = changed or next((one.get("changed", "") for one in mine), "")  # samples of then are in the run
        # Without any score the endpoint may just be down, and a spent budget says nothing about the judge.
        if beside or (any(one.score is not None for one in outcomes) and not used.failures["budget"]):
            check = {"endpoint": asked, "cases": _CASES, "problems": problems, "first": first or now}
            checks = [*(one for one in checks if one not in mine), {**check, "changed": changed}]
        write_whole(folder / FILE, json.dumps({"checks": checks, "usage": usage.to_json()}, indent=1))
        for warning in ([judge_warning(endpoint.model, problems)] if problems else []) + [changed] * bool(changed):
            console.print(f"Warning: {warning}", markup=False, highlight=False)


def tested(judges: Sequence[Endpoint], folder: Path) -> dict[Endpoint, bool]:
    """The judges that `check_judges` asks -> True if they are known, and only grade known replies again."""
    known = _known_checks(folder)
    return {endpoint: bool(_of(known, answer_settings(endpoint))) for endpoint in judges}


def problems_of(checks: Iterable[Mapping[str, Any]], asked: Mapping[str, Any]) -> list[str] | None:
    """The problems of the judge with these settings; empty if it passed, None if it was not tested."""
    return next((list(check["problems"]) for check in _of(checks, asked)), None)


def judge_warning(model: str, problems: Sequence[str]) -> str:
    """The title of the warning."""
    return f"The judge {model} cannot be trusted on replies that deserve nothing: {'; '.join(problems)}"


def _of(checks: Iterable[Mapping[str, Any]], asked: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [check for check in checks if check.get("endpoint") == asked and check.get("cases") == _CASES]


def _known_checks(folder: Path) -> list[dict[str, Any]]:
    """The results of this run and of all runs beside it."""
    return [check for path in sorted(folder.parent.glob(f"*/{FILE}")) for check in JudgeChecks.read(path.parent).checks]


async def _graded(
    settings: GatewaySettings, endpoint: Endpoint, spent_usd: float, is_known: bool
) -> tuple[list[canaries.CanaryResult], dict[str, Any], Usage]:
    """Let the judge score the replies. Returns the outcomes, the grades of honest replies, and the calls' usage."""
    limits = {"max_attempts": 2, "timeout_s": min(_PATIENCE_S, endpoint.timeout_s)}
    roles = dict.fromkeys(ROLES, endpoint.model_copy(update=limits))
    alone = GatewaySettings(roles=roles, policy=settings.policy)
    async with Gateway.connect(alone, spent_usd=spent_usd) as gateway:
        outcomes = [] if is_known else await canaries.run(gateway.judge)
        return outcomes, await drift.grade(gateway.judge), gateway.judge.usage
