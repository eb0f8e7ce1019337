"""Test the judges of an evaluation with replies that deserve nothing, once for each endpoint.

A judge that falls for them, or cannot tell a good reply from a weak one, gives scores that look like any others. The
results are in the run's folder, where the report finds them. Runs in the same output folder share them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from soul.errors import SoulError
from soul.evaluate.run.settings import answer_settings
from soul.files.json_object import read_object
from soul.files.whole_file import write_whole
from soul.judge import Endpoint, Judge
from soul.judge.audit import canaries
from soul.judge.audit.canary_cases import CANARIES

FILE = "judge_checks.json"
_CASES = hashlib.sha256(repr(CANARIES).encode()).hexdigest()[:8]
_PATIENCE_S = 60.0  # for one reply: a judge that takes longer has no score for it


class BadJudgeChecks(SoulError):
    """A file of results is damaged."""


def check_judges(judges: Sequence[Endpoint], folder: Path, console: Console) -> None:
    """Test the judges that no run in the same output folder has tested yet.

    Args:
        folder: of the run. The results of its judges are written to its `FILE`.

    Raises:
        BadJudgeChecks: a file of earlier results is damaged.
    """
    known = [check for path in sorted(folder.parent.glob(f"*/{FILE}")) for check in read_checks(path)]
    checks = read_checks(folder / FILE)
    for endpoint in judges:
        asked = answer_settings(endpoint)
        if problems_of(checks, asked) is not None:
            continue
        problems, scored = problems_of(known, asked), True
        if problems is None:
            problems, scored = _tested(endpoint, console)
        if scored:  # an endpoint that gave no score at all may only be down
            checks.append({"endpoint": asked, "cases": _CASES, "problems": problems})
            write_whole(folder / FILE, json.dumps({"checks": checks}, indent=1))
        if problems:
            console.print(f"Warning: {judge_warning(endpoint.model, problems)}", markup=False, highlight=False)


def read_checks(path: Path) -> list[dict[str, Any]]:
    """The results in a file; none if it does not exist.

    Raises:
        BadJudgeChecks: the file is damaged.
    """
    if not path.is_file():
        return []
    remedy = "Delete it: the next evaluation tests its judges again."
    checks = read_object(path, BadJudgeChecks, remedy).get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        raise BadJudgeChecks(f"{path} has no list of checks. {remedy}")
    return checks


def problems_of(checks: Collection[Mapping[str, Any]], asked: Mapping[str, Any]) -> list[str] | None:
    """The problems of the judge with these settings; empty if it passed, None if it was not tested."""
    mine = (check for check in checks if check.get("endpoint") == asked and check.get("cases") == _CASES)
    return next((list(check["problems"]) for check in mine), None)


def judge_warning(model: str, problems: Sequence[str]) -> str:
    """The title of the warning."""
    return f"The judge {model} cannot be trusted on replies that deserve nothing: {'; '.join(problems)}"


def _tested(endpoint: Endpoint, console: Console) -> tuple[list[str], bool]:
    """The problems of this judge, and True if it gave any score."""
    limits = {"max_attempts": 2, "deadline_s": min(_PATIENCE_S, endpoint.deadline_s)}

    async def outcomes() -> list[canaries.Outcome]:
        judge = Judge.connect(endpoint.model_copy(update=limits))
        try:
            return await canaries.run(judge)
        finally:
            await judge.close()

    with console.status(f"{endpoint.model} judges {len(CANARIES)} replies that deserve nothing"):
        found = asyncio.run(outcomes())
    return canaries.problems(found), any(outcome.score is not None for outcome in found)
