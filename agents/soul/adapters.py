"""The parts that the adapters to Inspect, verifiers and OpenEnv share: rows, gateways, verdicts and feedback.

The framework brings the model under test. SOUL draws the rows as `soul evaluate` does, plays and judges them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from soul import tasks
from soul.errors import NotInstalled
from soul.evaluate.run.options import RunOptions, Sections
from soul.evaluate.run.settings import SampleRequest, choose_sets, sample_requests
from soul.evaluate.runner import gateway_of, settings_of
from soul.judge import Endpoint, Gateway
from soul.policy import Players
from soul.record import AttemptRecord, Failure
from soul.rows.task_files import TaskRow, parse_row
from soul.session import Attempt, RefineSettings, Session, add_feedback, score
from soul.suites import SUITES, suite

CUT_SHORT = Failure(
    "play",
    "task_error",
    "there is no episode to judge: a limit ended the play, or another player than SOUL's played it",
)
# Gateways by event loop, which their connections belong to, and by settings: equal ones share caps and connections.
_connected: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Gateway]] = WeakKeyDictionary()


def not_installed(module: str, package: str, extra: str) -> NotInstalled:
    """The error of an adapter whose framework is not installed."""
    return NotInstalled(f"{module} needs {package}, which is not installed: pip install -e '.[{extra}]' in a checkout.")


def draw_rows(
    names: str, data: str | None, sections: Sections, limit: int | None = None, seed: int = 0
) -> list[SampleRequest]:
    """The rows that `soul evaluate` draws.

    Args:
        names: a set, a parquet file, several of them with commas between, or a suite.
        data: the folder with the data files; None: DATA_DIR.
        limit: rows of each set; None: those of the suite, or all.

    Raises:
        BadSettings: a setting or a set is unknown, or a set has no file.
    """
    chosen = suite(names) if names in SUITES else None
    options = RunOptions(
        () if chosen else tuple(name for name in names.split(",") if name),
        suite=chosen,
        sections=sections,
        data=Path(data or os.environ.get("DATA_DIR", "data")),
        limit=limit,
        seed=seed,
    )
    choose_sets(options.sets or (chosen.sets if chosen else ()), options.data)  # every set must have a file
    return sample_requests(settings_of(options, Endpoint(model="the framework's")))


def to_plain(row: TaskRow) -> dict[str, Any]:
    """The row as plain JSON, so that a framework's log can be judged again without the data files."""
    groups, record = dict(row.task.groups(row.row)), row.row.model_dump(mode="json")
    return {"task": row.task.name, "groups": groups, "record": record}


def from_plain(plain: Mapping[str, Any], sections: Sections, where: str, number: int) -> TaskRow:
    """Read the result of `to_plain` back; its task has the options of the section `tasks`."""
    tasks.configure(sections.get("tasks", {}))
    return parse_row(plain["task"], plain["record"], where, number)


def connect(sections: Sections, task: str) -> Gateway:
    """The judges and partners of these settings, with counters of its own for one session of a task."""
    settings = gateway_of(sections)
    gateways = _connected.setdefault(asyncio.get_running_loop(), {})
    key = settings.model_dump_json()
    if key not in gateways:
        gateways[key] = Gateway.connect(settings)
    return gateways[key].scope(task)


def has_connections() -> bool:
    """True if a gateway may have open connections."""
    return any(_connected.values())


async def disconnect() -> None:
    """Close the connections that belong to this event loop."""
    for gateway in _connected.pop(asyncio.get_running_loop(), {}).values():
        await gateway.close()


async def judge(row: TaskRow, played: AttemptRecord, gateway: Gateway) -> Attempt:
    """Judge a recorded episode; the result holds a verdict or a failure."""
    attempt = Attempt(Players(_no_seat), failure=None if played.seats else played.failure)
    if played.seats:
        attempt.episode = row.task.saved_episode(played)
        await score(attempt, row.task, row.row, gateway)
    return attempt


async def advise(row: TaskRow, judged: Attempt, gateway: Gateway) -> Session:
    """The feedback on an attempt with a verdict, as the training's driver gives it, or the reason why there is none."""
    session = Session(row.task.name, row.row, 0, judged, full_marks=row.task.headline.high)
    await add_feedback(session, row.task, row.row, gateway, RefineSettings())
    return session


def _no_seat(name: str) -> Any:
    raise AssertionError("a recorded episode is not played")
