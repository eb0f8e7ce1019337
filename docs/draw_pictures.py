"""Draw the pictures of the README, docs/figures.md and docs/viewer.md: curves of a run, pages, figures.

    python docs/draw_pictures.py curves outputs/demo/run/metrics.jsonl    # docs/pictures/curves.svg
    python docs/draw_pictures.py report                                   # docs/pictures/report.png, needs chromium
    python docs/draw_pictures.py viewer outputs/demo/run                  # docs/pictures/viewer-*.png, needs chromium
    python docs/draw_pictures.py figures ditto=DIR,DIR grpo=DIR           # docs/pictures/figures-*.svg

The report is of an evaluation of all sets with invented rows. The model and its judges are stand-ins that answer by
rule, so the numbers show the form and mean nothing. The viewer's are of the demo's training run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import cast

from playwright.sync_api import sync_playwright

from soul import examples
from soul.cli.arguments import existing_file, existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.examples.endpoint import answer
from soul.examples.example import Player
from soul.figures import drawing
from soul.figures.drawing import colours
from soul.figures.training import ablations, diagnostics, gap
from soul.figures.training_run import Named, TrainingRun, by_name, named_folders
from soul.message import Message
from soul.pages.api import Api
from soul.pages.catalogue import Catalogue
from soul.pages.page import served_page
from soul.pages.server import ViewServer
from soul.pages.training_view import TrainingView
from soul.testing.replies import ChatRequest, Reply, Text
from soul.testing.server import FakeOpenAI

PICTURES = Path(__file__).parent / "pictures"
# Metric -> label, in the order of preference; curves are drawn of those that the file has.
CURVES = {
    "ditto/reward_draft": "drafts",
    "ditto/reward_refined": "refined",
    "train/loss": "training loss",
    "val/loss": "validation loss",
}
WIDTH, HEIGHT = 1280, 900  # pixels of the report's picture
# Picture of the viewer -> the view's address, and the picture's height in pixels.
VIEWS = {"learning": ("learning", 720), "feedback": ("feedback", 640), "session": ("sessions", 800)}
MODEL, ROWS = "stand-in", 16  # the model under test, and the rows of each set


def curves(metrics: Path) -> Path:
    """Draw a metrics.jsonl: mean rewards by step, or the losses of supervised training."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ditto"  # the same numbers give the same file
    from matplotlib import pyplot

    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    figure, axes = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    for name, label in CURVES.items():
        points = [(line["step"], line[name]) for line in lines if name in line]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
    rewards = any("ditto/reward_draft" in line for line in lines)
    axes.set(xlabel="training step", ylabel="mean reward" if rewards else "loss per token")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    file = PICTURES / "curves.svg"
    figure.savefig(file, metadata={"Date": None})
    return file


def stand_in() -> Callable[[ChatRequest], Reply]:
    """A server's script: as the model under test it plays well or at random; judges and partners answer by rule."""
    players: dict[str, Player] = {}
    for example in map(examples.load, examples.names()):
        for number in range(ROWS):
            row = example.row(number)
            well = random.Random(f"{example.name} {number}").random() < 0.6
            player = example.player("oracle" if well else "random", row)
            players[example.task.prompt(row)[-1]["content"]] = player

    def script(request: ChatRequest) -> Reply:
        found = (players[m["content"]] for m in request.messages if m["content"] in players)
        player = next(found, None) if request.body["model"] == MODEL else None
        return answer(request) if player is None else Text(player(cast(Sequence[Message], request.messages)))

    return script


def report() -> Path:
    """Evaluate the stand-in on invented rows of all sets, and take a picture of the report's first screen."""
    file = PICTURES / "report.png"
    with tempfile.TemporaryDirectory() as folder, FakeOpenAI(stand_in()) as fake:
        environment = {**os.environ, "OPENAI_BASE_URL": fake.url, "OPENAI_API_KEY": "stand-in"}
        rows = ["-m", "soul.examples", "all", "--rows", str(ROWS), "--out", f"{folder}/data"]
        subprocess.run([sys.executable, *rows], check=True, env=environment)
        run = ["-m", "soul.evaluate", "--data", f"{folder}/data", "--out", f"{folder}/out", f"policy.model={MODEL}"]
        subprocess.run([sys.executable, *run], check=True, env=environment)
        page = next(Path(folder, "out").glob("*/report.html"))
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=3000"]
        size = [f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={file}"]
        subprocess.run([_chromium(), *options, *size, page.as_uri()], check=True, capture_output=True)
    return file


def viewer(run_folder: Path) -> Path:
    """Take pictures of the viewer's views of a training run."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(run_folder, Path(folder) / run_folder.name, ignore=shutil.ignore_patterns("global_step_*"))
        TrainingView(Path(folder) / run_folder.name).refresh()  # so that the index is complete
        server = ViewServer(Api(Catalogue(Path(folder))), served_page())
        Thread(target=server.serve_forever, daemon=True).start()
        run = server.api.catalogue.folders()["folders"][0]["id"]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
            for name, (view, height) in VIEWS.items():
                page = browser.new_page(viewport={"width": WIDTH, "height": height})
                page.goto(f"{server.address}#{run}/{view}")
                page.wait_for_load_state("networkidle")
                if name == "session":
                    page.locator("tbody tr[data-place]").first.wait_for()
                    page.keyboard.press("j")  # opens the first
                    page.locator("article.pane .score").wait_for()
                page.screenshot(path=PICTURES / f"viewer-{name}.png")
            browser.close()
        server.shutdown()
        server.server_close()
    return PICTURES


def _chromium() -> str:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"


def figures(named: Sequence[Named]) -> Path:
    """Draw the gap, the ablation and the diagnostics of these trainings. Their paths, as given, are in the files."""
    folders = by_name("figures", named)
    runs = {name: [TrainingRun.load(name, folder) for folder in of_name] for name, of_name in folders.items()}
    palette = colours(list(runs))
    for figure in (gap(runs), ablations(runs)[0], diagnostics(runs)):
        named_so = replace(figure, file=f"figures-{figure.file.partition('-')[0]}")
        *_, table = drawing.draw(named_so, PICTURES, palette, ("svg",))
        table.unlink()
    return PICTURES


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = Parser(prog="python docs/draw_pictures.py", description=__doc__)
    pictures = parser.add_subparsers(dest="picture", required=True)
    pictures.add_parser("curves").add_argument("metrics", type=existing_file)
    pictures.add_parser("report")
    pictures.add_parser("viewer").add_argument("run", type=existing_folder)
    pictures.add_parser("figures").add_argument("runs", type=named_folders, nargs="+", metavar="NAME=DIR,DIR")
    given = parser.parse_args(arguments)
    PICTURES.mkdir(exist_ok=True)
    if given.picture == "curves":
        print(curves(given.metrics))
    else:
        draw = {"report": report, "viewer": lambda: viewer(given.run), "figures": lambda: figures(given.runs)}
        print(draw[given.picture]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
