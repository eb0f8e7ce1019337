"""Draw the pictures of the README, docs/figures.md and docs/viewer.md: curves of a run, pages, figures.

    python docs/draw_pictures.py curves outputs/demo/run/metrics.jsonl    # docs/pictures/curves.svg
    python docs/draw_pictures.py report outputs/eval-ditto-demo-HASH      # docs/pictures/report.png, needs chromium
    python docs/draw_pictures.py viewer outputs/demo/run                  # docs/pictures/viewer-*.png, needs chromium
    python docs/draw_pictures.py figures ditto=DIR,DIR grpo=DIR           # docs/pictures/figures-*.svg

The report is of the demo's trained model on the stories that were held back from its training, the viewer's pictures
of that training:

    soul evaluate local outputs/demo/heldback.parquet --model outputs/demo/run --n 4 policy.temperature=1
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from soul.cli.arguments import existing_file, existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.evaluate.page import EvaluationView
from soul.figures import drawing
from soul.figures.drawing import colours
from soul.figures.training import ablations, gap
from soul.figures.training_run import Named, TrainingRun, by_name, named_folders
from soul.pages.api import Api
from soul.pages.catalogue import Catalogue
from soul.pages.export import REPORT, write_evaluation
from soul.pages.page import served_page
from soul.pages.server import ViewServer
from soul.pages.training_view import TrainingView

Scheme = Literal["light", "dark"]
PICTURES = Path(__file__).parent / "pictures"
# Metric -> label, in the order of preference; curves are drawn of those that the file has.
CURVES = {
    "ditto/reward_draft": "drafts",
    "ditto/reward_refined": "refined",
    "train/loss": "training loss",
    "val/loss": "validation loss",
}
WIDTH, HEIGHT = 1280, 800  # pixels of a picture
# Picture of the viewer -> the view's address, and the picture's height in pixels.
VIEWS = {"learning": ("learning", 720), "feedback": ("feedback", 640), "session": ("sessions", 800)}
NARROW = (390, 780)  # a phone


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


def report(evaluation: Path) -> Path:
    """Take a picture of an evaluation's report, with the details of its first set."""
    view = EvaluationView(evaluation)
    name = next(iter(view.overview(None)["sets"]))
    with tempfile.TemporaryDirectory() as folder:
        page = write_evaluation(view, Path(folder) / REPORT)
        with browser() as chromium:
            shown = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            shown.goto(f"{page.as_uri()}#run/results?open={name}")
            shown.locator(".detail").wait_for()
            shown.screenshot(path=PICTURES / "report.png")
    return PICTURES / "report.png"


def viewer(run_folder: Path) -> Path:
    """Take pictures of the viewer's views of a training run: wide and light, and of a phone's width and dark."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "outputs" / run_folder.name
        shutil.copytree(run_folder, run, ignore=shutil.ignore_patterns("global_step_*"))
        TrainingView(run).refresh()  # so that the index is complete
        server = ViewServer(Api(Catalogue(run)), served_page())
        Thread(target=server.serve_forever, daemon=True).start()
        (number,) = server.api.catalogue.found()
        with browser() as chromium:
            for name, (view, height) in VIEWS.items():
                _screenshot(chromium, f"{server.address}#{number}/{view}", f"viewer-{name}", WIDTH, height, "light")
                _screenshot(chromium, f"{server.address}#{number}/{view}", f"viewer-{name}-narrow", *NARROW, "dark")
        server.shutdown()
        server.server_close()
    return PICTURES


def _screenshot(chromium: Browser, address: str, name: str, width: int, height: int, scheme: Scheme) -> None:
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(address)
    page.wait_for_load_state("networkidle")
    if address.endswith("/sessions"):
        page.locator("tbody tr[data-place]").first.wait_for()
        page.keyboard.press("j")  # opens the first
        page.locator("article.pane .score").wait_for()
    page.screenshot(path=PICTURES / f"{name}.png")
    page.close()


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def figures(named: Sequence[Named]) -> Path:
    """Draw the gap and the ablation of these trainings. Their paths, as given, are in the files."""
    folders = by_name("figures", named)
    runs = {name: [TrainingRun.load(name, folder) for folder in of_name] for name, of_name in folders.items()}
    palette = colours(list(runs))
    for figure in (gap(runs), ablations(runs)[0]):
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
    pictures.add_parser("report").add_argument("evaluation", type=existing_folder)
    pictures.add_parser("viewer").add_argument("run", type=existing_folder)
    pictures.add_parser("figures").add_argument("runs", type=named_folders, nargs="+", metavar="NAME=DIR,DIR")
    given = parser.parse_args(arguments)
    PICTURES.mkdir(exist_ok=True)
    if given.picture == "curves":
        print(curves(given.metrics))
    else:
        work = {
            "report": lambda: report(given.evaluation),
            "viewer": lambda: viewer(given.run),
            "figures": lambda: figures(given.runs),
        }
        print(work[given.picture]())
    return 0


if __name__ == "__main__":
    sys.exit(main())
