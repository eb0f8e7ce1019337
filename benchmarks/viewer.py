"""Seconds until `soul view` shows a run of 51,216 sessions with all its numbers (goal: less than 3 s for each view).

    python -m benchmarks.viewer FOLDER     # makes FOLDER/run the first time; needs playwright and chromium

The index is there already, as after the first look (building it takes 20 s a GB). The median of several servers that
have just started counts; on a busy machine, judge by the seconds of CPU.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from soul.cli.arguments import output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.pages.catalogue import find
from soul.pages.export import indexed
from tests.soul.pages.invented_run import sessions_of, write_step

STEPS, ROWS = 97, 22  # of each of three tasks, with 8 sessions
TIMES = 5
CHART, ROW = "svg[role=slider]", "tbody tr"  # what is there once a view is shown
VIEWS = {"learning": CHART, "feedback": ROW, "sessions": ROW, "judge": CHART}


def seconds_to(browser: Browser, folder: Path, view: str) -> tuple[float, float]:
    """Seconds, and seconds of the server's CPU, from a page's address to the view with all sessions."""
    command = [sys.executable, "-m", "soul", "view", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        address = server.stdout.readline().split()[-1]
        (run,) = find(folder)
        page = browser.new_page()
        began, worked = time.perf_counter(), _cpu_of(server.pid)
        page.goto(f"{address}#{run.id}/{view}")
        page.locator(f"main section:not([hidden]) {VIEWS[view]}").first.wait_for(timeout=120_000)
        page.locator("nav .count").filter(has_text=re.compile("[1-9]")).wait_for(timeout=120_000)
        taken = time.perf_counter() - began, _cpu_of(server.pid) - worked
        page.close()
        server.send_signal(signal.SIGINT)
    return taken


def _cpu_of(process: int) -> float:
    """Seconds of a process in user and kernel mode, of Linux's files about it."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="python -m benchmarks.viewer", description=__doc__)
    parser.add_argument("folder", type=output_folder)
    folder = parser.parse_args(arguments).folder
    for step in range(1, STEPS + 1) if not (folder / "run").exists() else ():
        write_step(folder / "run", step, sessions_of(step, ROWS))
    indexed(folder / "run")
    with sync_playwright() as playwright:
        program = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for view in VIEWS:
            taken = [seconds_to(browser, folder, view) for _ in range(TIMES)]
            whole, cpu = (statistics.median(times) for times in zip(*taken, strict=True))
            print(f"{view:10} {whole:5.2f} s, {cpu:.2f} s of the server's CPU", flush=True)


if __name__ == "__main__":
    main()
