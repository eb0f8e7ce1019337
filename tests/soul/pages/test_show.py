"""`soul show`: the state of runs, and numbers that are recomputed from their files.

Promise under test: facts read small files only; a state follows lock, failure, steps and samples; every printed number
is in the files; no line is wider than the terminal.
"""

import json
import os
import re
import shutil
import statistics
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from soul.files.folder_lock import FILE, FolderLock
from soul.metrics.intervals import t_quantile
from soul.pages.facts import bucketed, facts
from soul.pages.verdict import verdict
from soul.show import BLOCKS, show
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import numbered
from tests.soul.pages.invented_run import STARTED, training


def shown(place, width=80):
    console = Console(file=StringIO(), width=width, color_system=None)
    show(place, console)
    return console.file.getvalue()


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def run(tmp_path):
    """A finished training of 12 steps; the drafts' rewards rise, the gap closes and an alarm is raised twice."""
    folder = training(tmp_path / "runs" / "ditto-1", steps=12)
    lines = metrics_of(folder)
    for number, line in enumerate(lines):
        line |= {"ditto/reward_draft": 0.2 + 0.06 * number, "ditto/reward_refined": 0.9, "alarm/fall": number in (4, 8)}
        line |= {"ditto/gap": max(0.0, 0.7 - 0.08 * number), "ditto/groups": 16.0, "ditto/reward_draft_error": 0.01}
        line |= {"val-core/hitom/reward/mean@1": 0.5 + number / 100} if number % 4 == 3 else {}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = json.loads((folder / "run.json").read_text()) | {"task": "hitom,sotopia"}
    (folder / "run.json").write_text(json.dumps(told | {"config": {"trainer": {"total_training_steps": 12}}}))
    usage = {"total": {"cost_usd": 1.234, "unpriced": 0}, "tasks": {}}
    (folder / "usage.json").write_text(json.dumps(usage))
    (folder / "global_step_10").mkdir()
    return folder


def test_a_training_is_summarised_by_the_numbers_of_its_files(run):
    shutil.rmtree(run / "traces" / "live", ignore_errors=True)
    for trace in (run / "traces").glob("*.jsonl"):
        trace.write_text("not a session")  # nothing may read it
    found, lines, text = facts(run), metrics_of(run), shown(run)
    drafts, half = [line["ditto/reward_draft"] for line in lines], t_quantile(15) * 0.01
    assert (found.state, found.done, found.total, found.cost_usd) == ("finished", 12, 12, 1.234)
    assert found.interval == pytest.approx((drafts[-1] - half, drafts[-1] + half))
    assert found.seconds == sum(line["timing_s/step"] for line in lines)
    assert found.curves["draft"] == drafts and found.curves["validation"].count(None) == 9
    first, last = statistics.fmean(drafts[:3]), statistics.fmean(drafts[-3:])
    assert f"Drafts rose over 12 steps: {first:.3f} to {last:.3f}" in " ".join(text.split())
    assert "the gap closed at step 9; 1 alarm: fall (step 5)." in " ".join(text.split())
    draft, refined, validation = re.findall(rf"^(\w+) +[{BLOCKS} ]+ ([\d.]+)", text, re.MULTILINE)
    assert (draft, refined) == (("draft", f"{drafts[-1]:.3f}"), ("refined", "0.900"))
    assert validation == ("validation", f"{lines[11]['val-core/hitom/reward/mean@1']:.3f}")
    assert "12 of 12 steps" in text and "Cost: $1.23. Checkpoints: 10." in text
    assert found.alarms == {"fall": 5}


def test_the_state_follows_lock_failure_and_steps(run):
    cause = {"cause": "rollout server 0 died", "time": STARTED + 1}
    (run / "failure.json").write_text(json.dumps(cause))
    assert facts(run).state == "failed" and "rollout server 0 died" in shown(run)
    (run / "failure.json").write_text(json.dumps(cause | {"time": STARTED - 1}))  # it was resumed since
    with FolderLock(run):
        assert facts(run).state == "running" and ", running, 12 of 12 steps" in shown(run)
        for file in run.rglob("*"):
            if file.name != FILE:
                os.utime(file, (time.time() - 1000, time.time() - 1000))
        (run / "traces" / "index.sqlite").touch()  # the viewer's, not the run's
        assert facts(run).state == "stale" and "changed 17 min ago" in shown(run)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics_of(run)[:7]))
    assert facts(run).state == "stopped" and facts(run).done == 7


def test_a_supervised_run_is_finished_stopped_failed_or_running_as_it_left_its_folder(tmp_path):
    """Folders of train_sft.py without checkpoints: its six steps are done; SIGTERM at step 4; a rank was killed."""
    shutil.copytree(Path(__file__).with_name("sft_runs"), tmp_path / "runs")
    found = {name: facts(tmp_path / "runs" / name) for name in ("finished", "stopped", "failed")}
    assert all(one.state == name and one.objective == "sft" for name, one in found.items())
    assert [(one.done, one.total) for one in found.values()] == [(6, 6), (4, 500), (3, 500)]
    assert "was ended by SIGKILL" in found["failed"].cause and not found["stopped"].cause
    assert found["finished"].last["loss"] == metrics_of(tmp_path / "runs" / "finished")[-1]["train/loss"]
    (tmp_path / "runs" / "stopped" / "metrics.jsonl").unlink()  # as before its first step
    (tmp_path / "runs" / "stopped" / "run.json").touch()
    with FolderLock(tmp_path / "runs" / "stopped"):
        assert facts(tmp_path / "runs" / "stopped").state == "running"


def test_an_evaluation_shows_its_table_and_its_live_numbers(tmp_path, run):
    from soul.evaluate.outputs import write_outputs

    done = finished_run(tmp_path / "runs" / "eval-1", numbered([1.0, 0.0, 1.0, 1.0, 1.0, None]))
    write_outputs(done)
    results = json.loads((done.folder / "results.json").read_text())["averages"]["macro"]
    found = facts(done.folder)
    assert (found.state, found.done, found.total, found.score) == ("finished", 6, 6, results["mean"])
    assert found.interval == tuple(results["interval"]) and found.cost_usd == 6 * 0.75
    half_done = finished_run(tmp_path / "runs" / "eval-2", numbered([1.0, 0.0]), asked=3)
    assert facts(half_done.folder).state == "stopped" and "2 of 5 samples" in shown(half_done.folder)
    assert " 50.0 [-] " in shown(half_done.folder)
    for width in (60, 80, 120):
        text = shown(tmp_path / "runs", width)
        assert max(map(len, text.splitlines())) <= width
        for name, score in {"ditto-1": "0.860", "eval-1": f"{100 * found.score:.1f}", "eval-2": "-"}.items():
            (line,) = [line for line in text.splitlines() if f" {name} " in line]
            assert f" {score} " in line


def test_curves_and_sentences_of_short_and_flat_runs():
    assert bucketed([1.0, 3.0, None, None, 5.0, 7.0], 3) == [2.0, None, 6.0]
    assert verdict([0.1], {}, {}).startswith("Only 1 steps")
    assert "; the gap went from +0.100 to +0.300." in verdict([0.5] * 8, dict(enumerate([0.1] * 4 + [0.3] * 4)), {})
