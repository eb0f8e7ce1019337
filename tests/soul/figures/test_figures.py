"""`soul figures --runs`: figures from trainings.

Promise under test: what a figure shows is what the runs' metrics say, seed by seed and as mean and band; each file has
the runs' hashes; what a run lacks is a sentence and no figure; the same runs give the same files.
"""

import csv
import hashlib
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure as Canvas
from matplotlib.image import imread
from scipy.stats import t

import soul
from soul import tasks
from soul.figures import drawing
from soul.figures.command import main
from soul.figures.drawing import COLOURS, colours
from soul.figures.figure import Figure
from soul.figures.training import ablations, gap, training_curves
from soul.figures.training_run import TrainingRun
from tests.soul.figures.made_up_runs import training

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two seeds of ditto and one of grpo that collapses."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "ditto-1": training(folder / "ditto-1", 1),
        "ditto-2": training(folder / "ditto-2", 2, steps=20),  # still running
        "grpo": training(folder / "grpo", 1, objective="grpo", gain=0.01, secret=-0.2, collapse=True),
    }


@pytest.fixture(scope="module")
def drawn(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("figures")
    assert draw(runs, out) == 0
    return out


def draw(runs: dict[str, Path], out: Path) -> int:
    return main(["--runs", f"ditto={runs['ditto-1']},{runs['ditto-2']}", f"grpo={runs['grpo']}", "--out", str(out)])


def read(file: Path) -> Rows:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def metrics(folder: Path) -> dict[int, dict[str, float]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line for line in lines}


def sha256(folder: Path) -> str:
    return hashlib.sha256((folder / "metrics.jsonl").read_bytes()).hexdigest()


def of(rows: Rows, **wanted: str) -> Rows:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_a_curve_is_what_the_runs_say(runs: dict[str, Path], drawn: Path) -> None:
    rows = read(drawn / "training.csv")
    one, two, grpo = (metrics(runs[name]) for name in ("ditto-1", "ditto-2", "grpo"))
    seed = of(rows, panel="sotopia: reward of drafts", run=str(runs["ditto-1"]))
    assert {int(row["step"]): float(row["value"]) for row in seed} == {
        step: numbers["ditto/reward_draft"] for step, numbers in one.items()
    }
    assert {row["sha256"] for row in seed} == {sha256(runs["ditto-1"])}
    mean = of(rows, panel="sotopia: reward of drafts", run="mean of 2")
    assert [int(row["step"]) for row in mean] == list(range(1, 21))  # the steps that both seeds have
    for row in mean:
        both = [numbers[int(row["step"])]["ditto/reward_draft"] for numbers in (one, two)]
        assert float(row["value"]) == pytest.approx(statistics.fmean(both))
        assert row["low"] == row["high"] == ""  # two seeds tell too little of others
    alone = of(rows, panel="sotopia: reward of drafts", run="mean of 1")
    half = t.ppf(0.975, 3) * grpo[7]["ditto/reward_draft_error"]  # one seed: the error over four prompts
    assert float(alone[6]["high"]) - float(alone[6]["value"]) == pytest.approx(half)
    assert {row["step"] for row in of(rows, panel="sotopia: validation")} == {"6", "12", "18", "24"}


def test_a_run_without_feedback_has_no_gap_and_a_sentence_says_so(drawn: Path) -> None:
    rows = read(drawn / "gap.csv")
    assert {row["name"] for row in rows} == {"ditto"}
    assert {row["metric"] for row in rows} == {"ditto/reward_draft", "ditto/reward_refined", "ditto/gap"}
    index = (drawn / "index.md").read_text()
    assert "gap, sotopia: no step has judged refined answers in all seeds of grpo." in index


def test_the_ablation_compares_all_names_at_one_step(runs: dict[str, Path], drawn: Path) -> None:
    rows = read(drawn / "ablation-sotopia.csv")
    (secret,) = of(rows, panel="secret ↑, drafts", name="grpo", run="mean of 1")
    reached = metrics(runs["grpo"]).values()
    last = [numbers["ditto/secondary/sotopia/secret"] for numbers in reached if numbers["step"] <= 20][-10:]
    assert float(secret["value"]) == pytest.approx(statistics.fmean(last)) and secret["low"] == ""
    (reward,) = of(rows, panel="reward, validation", name="ditto", run="mean of 2")  # all runs validated in step 18
    assert float(reward["value"]) == pytest.approx(0.2 + 0.02 * 18)
    assert "the names at step 20" in (drawn / "index.md").read_text()


def test_every_file_holds_the_hashes_of_its_runs(runs: dict[str, Path], drawn: Path) -> None:
    for file in drawn.iterdir():
        if file.suffix in (".svg", ".csv", ".pdf") and file.stem.startswith(("training", "ablation")):
            assert all(sha256(folder).encode() in file.read_bytes() for folder in runs.values()), file.name
    assert (drawn / "training.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_runs_give_the_same_files(runs: dict[str, Path], drawn: Path, tmp_path: Path) -> None:
    names = {"ditto": [runs["ditto-1"], runs["ditto-2"]], "grpo": [runs["grpo"]]}
    loaded = {name: [TrainingRun.load(name, folder) for folder in folders] for name, folders in names.items()}
    for file in drawing.draw(training_curves(loaded), tmp_path, colours(list(loaded))):
        assert file.read_bytes() == (drawn / file.name).read_bytes(), file.name


def test_each_task_of_a_mixture_has_its_panels(tmp_path: Path) -> None:
    mixed = training(tmp_path / "mixed", 1, steps=3, tasks=("sotopia", "hitom"))
    alone = training(tmp_path / "alone", 2, steps=3)
    figure = training_curves({"mixed": [TrainingRun.load("mixed", mixed)], "alone": [TrainingRun.load("alone", alone)]})
    shown = {panel.title: {(curve.name, curve.metric) for curve in panel.curves} for panel in figure.panels}
    assert shown == {
        "sotopia: reward of drafts": {("mixed", "ditto/task/sotopia/reward_draft"), ("alone", "ditto/reward_draft")},
        "hitom: reward of drafts": {("mixed", "ditto/task/hitom/reward_draft")},
    }
    assert figure.missing == ["training, hitom: no step has a reward of drafts in all seeds of alone."]


def axes_of(figure: Figure, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The axes of a figure as they are written, by title."""
    seen: list[Any] = []
    save = Canvas.savefig
    monkeypatch.setattr(
        Canvas, "savefig", lambda self, *words, **named: (seen.append(self), save(self, *words, **named))
    )
    files = drawing.draw(figure, out, colours(["ditto", "grpo"]), ("png",))
    assert [file.suffix for file in files] == [".png", ".csv"]
    height, width, _ = imread(files[0]).shape
    assert min(height, width) > 200
    return {axes.get_title(): axes for axes in seen[0].axes}


def test_axes_are_honest(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward's axis has its whole range; another axis has 0, or says that it has not."""
    loaded = {"ditto": [TrainingRun.load("ditto", runs["ditto-1"])], "grpo": [TrainingRun.load("grpo", runs["grpo"])]}
    metric = tasks.load("sotopia").headline
    curves = axes_of(training_curves(loaded), tmp_path, monkeypatch)
    lows, highs = zip(*(axes.get_ylim() for axes in curves.values()), strict=True)
    assert set(lows) == {metric.low}
    assert min(highs) > metric.high  # the made-up rewards leave the range, and are shown
    (figure,) = ablations(loaded)
    dots = axes_of(figure, tmp_path, monkeypatch)
    assert dots["reward, validation"].get_xlim() == pytest.approx((metric.low, 0.2 + 0.02 * 24))
    assert metric.high < 0.2 + 0.02 * 24
    for title, axes in dots.items():
        low, high = axes.get_xlim()
        assert (axes.get_xlabel() == drawing.ZOOMED) is not (low <= 0 <= high), title
    assert axes_of(gap(loaded), tmp_path, monkeypatch)["sotopia: gap, in sessions with both"].get_ylim()[0] <= 0


def test_figures_and_pages_have_the_same_colours() -> None:
    """In the CSS the first value of a variable is that of the light theme."""
    css = (Path(soul.__file__).parent / "pages/style.css").read_text()
    for name, colour in COLOURS.items():
        assert f"--{name}: light-dark({colour}, " in css
