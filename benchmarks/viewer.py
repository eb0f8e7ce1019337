"""Seconds until `soul view` shows a run of 51,200 sessions (goal: less than 3 s from its address to curves and list).

    python -m benchmarks.viewer FOLDER                  # makes FOLDER/run the first time; needs playwright and chromium
    python -m benchmarks.viewer FOLDER --steps 50

A session is that of a one-turn task with two attempts and two calls of a judge (about 8 kB). The index is built once,
which is measured apart; then a browser opens each view several times, each time with a server that has just started,
and the median counts.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

from playwright.sync_api import Browser, sync_playwright

from ditto.run.run_folder import RunFolder
from ditto.run.step_metrics import session_metrics
from soul.cli.arguments import output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.pages.api import Api
from soul.pages.catalogue import Catalogue
from soul.pages.page import served_page
from soul.pages.server import ViewServer
from soul.pages.training_view import TrainingView
from soul.record import SessionRecord

GROUPS, GROUP = 64, 8  # of a step
GOAL_S = 3.0
TIMES = 5
# View -> what is there once it is shown.
VIEWS = {
    "learning": "main section:not([hidden]) svg[role=slider]",
    "feedback": "main section:not([hidden]) table.data tbody tr",
    "sessions": "main section:not([hidden]) tbody tr[data-place]",
    "judge": "main section:not([hidden]) svg[role=slider]",
}


def sessions(step: int) -> Iterator[SessionRecord]:
    """The sessions of a step; rewards rise with the steps, and texts differ."""
    dice = random.Random(step)
    story = "Ava moved the tomato to the green bottle while Lily was in the bedroom and could not see it. " * 12
    for number in range(GROUPS):
        for k in range(GROUP):
            rewards = [float(dice.random() < 0.3 + step / 250), float(dice.random() < 0.8)]
            asked = {"role": "user", "content": f"Is this answer right? {story}"}
            call = {"model": "judge", "request": [asked], "reply": "7"}
            calls = [{"role": role, **call} for role in ("judge", "feedback")]
            attempts = [
                {"seats": {"policy": [{"role": "user", "content": f"{story} Row {number}?"}, answer(step, k)]}}
                | {"reward": reward, "ended": "answered", "calls": calls, "given": "AB"[int(reward)]}
                | {"seconds": {"play": 2.0}, "started": {"play": 60.0 * step}}
                for reward in rewards
            ]
            place = {"task": "hitom", "file": "hitom.parquet", "number": number, "row": number, "step": step}
            ids = {"session": f"{number}_{k}", "prompt": f"hitom-{number}", "prompts": ["hitom/feedback@1"]}
            both = {"draft": attempts[0], "refined": attempts[1], "feedback": f"You forget Ava. Think of {number}."}
            yield SessionRecord.model_validate({**place, **ids, **both, "question": f"Where is tomato {number}?"})


def answer(step: int, k: int) -> dict[str, str]:
    """An answer of the policy."""
    return {"role": "assistant", "content": f"At {step} I think of {k} places. <answer>A</answer>"}


def make(folder: Path, steps: int) -> None:
    """Write a run as a training writes it."""
    run = RunFolder(folder)
    for step in range(1, steps + 1):
        of_step = list(sessions(step))
        run.write_traces("step", step, of_step)
        run.log_metrics(step, session_metrics(of_step) | {"timing_s/step": 45.0, "actor/entropy": 1 / step})
    facts = {"schema_version": 1, "objective": "ditto", "started": time.time(), "resumed": []}
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")


def seconds_to(browser: Browser, folder: Path, view: str) -> float:
    """Start a server and a page; return the seconds from its address to the view with all sessions."""
    server = ViewServer(Api(Catalogue(folder)), served_page())
    Thread(target=server.serve_forever, daemon=True).start()
    (run,) = server.api.catalogue.found()
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    began = time.perf_counter()
    page.goto(f"{server.address}#{run}/{view}")
    page.locator(VIEWS[view]).first.wait_for()
    page.locator("nav .count").filter(has_text=re.compile("[1-9]")).wait_for()  # all sessions are there
    taken = time.perf_counter() - began
    page.close()
    server.shutdown()
    server.server_close()
    return taken


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="python -m benchmarks.viewer", description=__doc__)
    parser.add_argument("folder", type=output_folder)
    parser.add_argument("--steps", type=positive_int, default=100)
    given = parser.parse_args(arguments)
    folder = given.folder / "run"
    if not folder.exists():
        make(folder, given.steps)
    began = time.perf_counter()
    view = TrainingView(folder)
    view.refresh()
    count = len(view.columns(0, None)["columns"]["id"])
    size = sum(file.stat().st_size for file in (folder / "traces").glob("*.jsonl*")) / 1e6
    print(f"{count:,} sessions, {size:,.0f} MB: the index is built in {time.perf_counter() - began:.1f} s", flush=True)
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in VIEWS:
            taken = [seconds_to(browser, given.folder, name) for _ in range(TIMES)]
            median = statistics.median(taken)
            print(f"{name:10} {median:5.2f} s{'' if median < GOAL_S else '   slower than the goal'}", flush=True)


if __name__ == "__main__":
    main()
