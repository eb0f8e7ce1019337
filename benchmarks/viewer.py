"""Measure `soul view` on a training as large as the paper's: 100 steps x 512 sessions x 2 episodes of 8,000 tokens.

    python -m benchmarks.viewer make FOLDER [--steps 100] [--sessions 512] [--tokens 8000]      # 3.8 GB of traces
    python -m benchmarks.viewer measure FOLDER                                                  # prints a table

`measure` deletes the index of the run and builds it again; then it starts the viewer as a user does, and times what the
page asks for first (page, folders, overview, all columns), single sessions with and without the file in the system's
cache, and a search of all texts. With Playwright and Chromium installed (`CHROMIUM` names another one), it also opens
the page and reports the largest heap of JavaScript over its views.

Goals: open in 1 s where the index exists, a session in 0.2 s, a heap below 150 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from soul.cli.arguments import existing_folder, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.files.trace_files import FOLDER
from soul.files.whole_file import write_whole
from soul.record import AttemptRecord, SessionRecord
from soul.view.index_file import FILE

NAME = "big-run"
GROUP = 8  # sessions of a prompt
CHARACTERS = 4.6  # of a token, as in English text
WORDS = """the a seller buyer price kettle lamp garden story box red green asks says keeps moves sees wants offer deal
“quoted” café\n naïve\n\n never "really" friend budget secret promise agree refuse smile wait listen answer""".split(
    " "
)
NEEDLE = "a needle in the haystack"  # in one session only
POOL = 4_000_000  # characters of invented text, of which episodes are slices
SAMPLED = 40  # sessions that are read


def make(given: argparse.Namespace) -> None:
    """Write the traces and metrics of an invented training."""
    run: Path = given.folder / NAME
    (run / FOLDER).mkdir(parents=True, exist_ok=True)
    dice = random.Random(1)
    pool = " ".join(dice.choices(WORDS, k=POOL // 6))
    metrics = []
    for step in range(1, given.steps + 1):
        lines = (invented(dice, pool, step, k, given).to_line() + "\n" for k in range(given.sessions))
        write_whole(run / FOLDER / f"step_{step:06d}.jsonl", lines)
        metrics.append({"step": step} | {f"ditto/number_{k}": dice.random() for k in range(120)})
    write_whole(run / "metrics.jsonl", (json.dumps(numbers) + "\n" for numbers in metrics))
    print(f"{run}: {trace_bytes(run) / 1e9:.2f} GB of traces")


def invented(dice: random.Random, pool: str, step: int, k: int, given: argparse.Namespace) -> SessionRecord:
    """One session; the last one of the run has the needle."""
    row, place = divmod(k, GROUP)
    last = step == given.steps and k == given.sessions - 1
    draft = min(1.0, max(0.0, dice.gauss(0.3 + 0.003 * step, 0.2)))
    return SessionRecord(
        task=("sotopia", "coser")[row % 2],
        file="train.parquet",
        number=row,
        row=row,
        step=step,
        prompt=f"prompt-{step}-{row}",
        session=f"prompt-{step}-{row}_{place}",
        draft=attempt(dice, pool, draft, given.tokens),
        feedback=NEEDLE if last else "Name your price early, and say why.",
        refined=attempt(dice, pool, min(1.0, draft + dice.gauss(0.1, 0.1)), given.tokens),
        advantages={"draft": dice.gauss(0, 1), "refined_base": dice.gauss(0, 1)},
    )


def attempt(dice: random.Random, pool: str, reward: float, tokens: int) -> AttemptRecord:
    """An episode of four messages with this many tokens together."""
    length = int(CHARACTERS * tokens) // 4
    starts = [dice.randrange(len(pool) - length) for _ in range(4)]
    roles = ("user", "assistant", "user", "assistant")
    messages = [{"role": role, "content": pool[at : at + length]} for role, at in zip(roles, starts, strict=True)]
    times = {"seconds": {"play": 30.0, "judge": 5.0}, "started": {"play": 1e9, "judge": 1e9 + 30}}
    return AttemptRecord.model_validate(
        {"seats": {"policy": messages}, "reward": reward, "metrics": {"goal": 10 * reward}, **times}
    )


def trace_bytes(run: Path) -> int:
    return sum(path.stat().st_size for path in (run / FOLDER).glob("*.jsonl"))


def measure(given: argparse.Namespace) -> None:
    """Print the table."""
    run: Path = given.folder / NAME
    table = Table("what", "measured", "goal", title=f"soul view, {trace_bytes(run) / 1e9:.2f} GB of traces")
    for name in (FILE, f"{FILE}-journal"):
        (run / FOLDER / name).unlink(missing_ok=True)
    with viewer(given.folder) as server:
        built = seconds(lambda: wait_for_index(server))
        speed = trace_bytes(run) / 1e6 / server.cpu_s()
        words = (
            f"{built:.1f} s, {server.cpu_s():.1f} s of CPU ({speed:,.0f} MB/s), {server.peak_mb():,.0f} MB of memory"
        )
        table.add_row("build the index", words, "")
    size = (run / FOLDER / FILE).stat().st_size
    table.add_row("size of the index", f"{size / 1e6:.1f} MB", "")
    with viewer(given.folder) as server:
        requests, before = server.first_requests(), server.cpu_s()
        opened = {what: server.timed(path) for what, path in requests.items()}
        cpu = server.cpu_s() - before
        parts = ", ".join(f"{what} {took:.2f} s, {got / 1e6:.2f} MB" for what, (took, got) in opened.items())
        table.add_row("start of the command", f"{server.started:.2f} s", "")
        whole = sum(took for took, _ in opened.values())
        table.add_row("open the run", f"{whole:.2f} s, {cpu:.2f} s of CPU ({parts})", "1 s")
        for cached in (False, True):
            took = sorted(read_times(server, run, cached))
            words = f"median {statistics.median(took):.3f} s, longest {took[-1]:.3f} s"
            table.add_row(f"a session, {'file in the cache' if cached else 'file not in the cache'}", words, "0.2 s")
        for what, text in (("rare", NEEDLE), ("frequent", "kettle"), ("rare, not ASCII", "dönerstraße")):
            table.add_row(f"search, {what} text", search_time(server, text), "")
        table.add_row("server's memory at most", f"{server.peak_mb():,.0f} MB", "")
        table.add_row("page's heap at most", heap(server), "150 MB")
    Console(width=140).print(table)


class Server:
    """A running `soul view`; `started` is the seconds that the command took to print its address."""

    def __init__(self, folder: Path) -> None:
        start = time.perf_counter()
        command = [sys.executable, "-m", "soul", "view", str(folder), "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found is not None, "the viewer printed no address"
        self.address, self.started = found.group(), time.perf_counter() - start

    def get(self, path: str) -> bytes:
        """The body of an answer, as it was sent."""
        request = urllib.request.Request(self.address + path, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return bytes(answer.read())

    def json(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path, timeout=600) as answer:
            return json.load(answer)

    def timed(self, path: str) -> tuple[float, int]:
        """Seconds and bytes of an answer."""
        start = time.perf_counter()
        size = len(self.get(path))
        return time.perf_counter() - start, size

    @property
    def run(self) -> str:
        """The path of the run's API."""
        (folder,) = self.json("api/folders")["folders"]
        return f"api/run/{folder['id']}"

    def first_requests(self) -> dict[str, str]:
        """What the page asks for when it opens a run."""
        run = self.run
        return {"page": "", "folders": "api/folders", "overview": f"{run}/overview", "columns": f"{run}/index?after=0"}

    def cpu_s(self) -> float:
        """Seconds of CPU time that the server has used so far: what a busy machine does not change."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime

    def peak_mb(self) -> float:
        """The server's largest resident memory so far, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found.group(1)) / 1000 if found else float("nan")


@contextmanager
def viewer(folder: Path) -> Iterator[Server]:
    """A viewer that ends with the block."""
    server = Server(folder)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(30)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def wait_for_index(server: Server) -> None:
    """Ask as the page does, until nothing is left to index."""
    run = server.run
    while server.json(f"{run}/overview?from=0")["indexing"] is not None:
        time.sleep(0.1)


def read_times(server: Server, run: Path, cached: bool) -> list[float]:
    """Seconds for single sessions, spread over the run."""
    path = server.run
    count = max(server.json(f"{path}/index?after=0")["columns"]["id"])
    chosen = random.Random(2).sample(range(1, count + 1), min(SAMPLED, count))
    for file in () if cached else (run / FOLDER).glob("*.jsonl"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return [server.timed(f"{path}/session/{number}")[0] for number in chosen]


def search_time(server: Server, text: str) -> str:
    """How long until the first hit, and until all texts are searched."""
    start = time.perf_counter()
    first, hits = None, 0
    with urllib.request.urlopen(f"{server.address}{server.run}/search?text={urllib.parse.quote(text)}") as answer:
        for line in answer:
            if "hit" in json.loads(line):
                first, hits = first or time.perf_counter() - start, hits + 1
    return f"{time.perf_counter() - start:.1f} s, {hits:,} hits" + (f", the first after {first:.2f} s" if first else "")


def heap(server: Server) -> str:
    """The largest heap of the page over its views, after a garbage collection in each."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "not measured: Playwright is not installed"
    if chromium is None:
        return "not measured: there is no chromium"
    run = server.run.rpartition("/")[2]
    sizes = {}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        tools = page.context.new_cdp_session(page)
        page.goto(server.address)
        for view in ("learning", "sessions", "feedback", "costs", "sessions?text=kettle"):
            page.evaluate("place => { location.hash = place }", f"{run}/{view}")
            page.wait_for_timeout(4000)
            tools.send("HeapProfiler.collectGarbage")
            used = tools.send("Runtime.getHeapUsage")  # typed arrays are in the backing storage
            sizes[view] = (used["usedSize"] + used.get("backingStorageSize", 0)) / 1e6
        browser.close()
    most = max(sizes, key=lambda view: sizes[view])
    return f"{sizes[most]:.0f} MB, in {most} (" + ", ".join(f"{view} {size:.0f}" for view, size in sizes.items()) + ")"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = Parser(prog="python -m benchmarks.viewer", description=__doc__)
    commands = parser.add_subparsers(required=True)
    maker = commands.add_parser("make", help="write an invented training")
    maker.add_argument("folder", type=output_folder)
    maker.add_argument("--steps", type=positive_int, default=100)
    maker.add_argument("--sessions", type=positive_int, default=512, help="a step")
    maker.add_argument("--tokens", type=positive_int, default=8000, help="an episode")
    maker.set_defaults(work=make)
    measurer = commands.add_parser("measure", help="measure the viewer on it")
    measurer.add_argument("folder", type=existing_folder)
    measurer.set_defaults(work=measure)
    given = parser.parse_args(arguments)
    given.work(given)


if __name__ == "__main__":
    sys.exit(main())
