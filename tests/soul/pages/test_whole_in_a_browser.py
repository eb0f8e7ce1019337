"""Home, comparison, playground and annotation in a browser, and a run that grows: what is shown equals the files.

Promise under test: what people do in the page (compare, play, label, mark) arrives in files, by keys and buttons alone.
"""

import json
import shutil
from pathlib import Path

import pytest

from soul.compare.runs import compare_runs
from soul.evaluate.numbers.results import summarise
from soul.evaluate.run.run_folder import EvaluationRun
from soul.files.folder_lock import FolderLock
from soul.pages.export import write_comparison, write_site
from soul.pages.page import served_page
from soul.record import read_records
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM, numbered
from tests.soul.pages.browser_pages import NOW, PANE, POLL_MS, found, needs_a_browser, opener, settled, until
from tests.soul.pages.invented_run import STEPS, sessions_of, training, write_step
from tests.soul.pages.served import served

pytest.importorskip("playwright.sync_api")
pytestmark = needs_a_browser


def test_two_runs_are_ticked_at_home_and_compared(opened, outputs):
    page = opened("", None)
    for name in ("first", "second"):
        page.get_by_label(f"compare {name}").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    page.locator(".forest.headline").wait_for()
    (expected,) = compare_runs([outputs / "first", outputs / "second"]).comparisons
    rows = page.locator(f"{NOW} table.data tbody tr")
    shown = {row.split("\t")[0]: row.split("\t") for row in rows.all_inner_texts()}
    assert set(shown) == set(expected.sets)
    for name, one in expected.sets.items():
        assert shown[name][2:5] == [str(len(one.rows)), *(f"{mean:.3f}" for mean in one.means)]
        assert shown[name][5].rstrip(" *") == f"{one.estimate.mean:+.3f}".replace("+0.000", "0.000")
    page.get_by_role("link", name="sotopia", exact=True).click()
    found(page, f"{len(expected.sets['sotopia'].rows)} rows")
    page.locator("tbody tr[data-place]").first.click()
    page.locator(f"{PANE} .sides .score").first.wait_for()
    assert page.locator(f"{PANE} .sides section").count() == 2


def test_comparison_and_site_are_files_that_need_no_server(browser, outputs, tmp_path):
    file = write_comparison([outputs / "first", outputs / "second"], tmp_path / "comparison.html", within=True)
    with opener(browser, file.as_uri()) as open_:
        page = open_()
        page.locator(".forest.headline").first.wait_for()
        assert "Refined answers against drafts" in settled(page)
    index, *files = write_site(outputs, tmp_path / "site")
    assert len(files) == 3
    with opener(browser, index.parent.as_uri()) as open_:
        for name in ("first", "second", "base"):
            page = open_(f"/{index.name}")
            page.get_by_role("link", name=name, exact=True).click()
            page.locator("h1").wait_for()
            assert not page.locator("#problem").is_visible() and len(settled(page)) > 300


def test_a_person_plays_a_row_answers_again_and_keeps_it(opened, written):
    page = opened("play", None)
    page.get_by_label("Play row 1", exact=True).click()
    for turn, text in (("Send", "<answer>B</answer>"), ("Answer again with the feedback", "<answer>A</answer>")):
        if turn != "Send":
            page.get_by_role("button", name=turn).click()
        page.locator("textarea").fill(text)
        page.keyboard.press("Control+Enter")
    page.get_by_text("Expected").wait_for()
    page.get_by_role("button", name="Keep as a record").click()
    page.locator("#notice", has_text="Kept in").wait_for()
    (line,) = read_records(written / "kept" / "records.jsonl")
    shown = [float(text) for text in page.locator(f"{NOW} .score strong").all_inner_texts()]
    assert shown == [attempt.reward for attempt in line.record.attempts]
    assert line.record.feedback in page.inner_text(f"{NOW} blockquote")


def test_a_person_labels_blinded_pairs_by_keys_and_goes_on_later(opened, written):
    page = opened("annotate", None)
    page.get_by_label("your name").fill("Ann")
    page.keyboard.press("Enter")
    for k, key in enumerate("abt"):
        page.get_by_text(f"Ann: {k} of 6 items").wait_for()
        assert "policy" not in page.inner_text(NOW) and "refined" not in page.inner_text(NOW)
        page.keyboard.press(key)
    page.get_by_text("Ann: 3 of 6 items").wait_for()
    again = opened("annotate/Ann", None)
    again.get_by_text("Ann: 3 of 6 items").wait_for()
    again.get_by_text("Progress and agreement").click()
    again.get_by_text("pairwise: accuracy").wait_for(timeout=60_000)  # thousands of resamples
    assert len((written / "labels" / "labels.jsonl").read_text().splitlines()) == 3


def test_a_run_that_grows_keeps_the_open_session_and_the_focus(browser, tmp_path):
    folder = training(tmp_path / "outputs" / "growing", 2)
    with served(tmp_path / "outputs", served_page(poll_ms=POLL_MS)) as client:
        until(lambda: client.run("growing")("index")["columns"].get("id"))
        before = len(client.run("growing")("index")["columns"]["id"])
        with opener(browser, client.server.address) as open_:
            page = open_(f"#{client.ids()['growing']}/session/2.hitom-1_3")
            page.locator(f"{PANE} .score").wait_for()
            text = page.inner_text(PANE)
            page.locator(f"{PANE} .turn button").first.focus()
            write_step(folder, 3, sessions_of(3))
            found(page, f"{before + len(sessions_of(3))} sessions")
            assert page.inner_text(PANE) == text
            assert page.evaluate("document.activeElement.ariaLabel") == "Previous"


def test_a_running_evaluation_shows_new_samples_and_changed_scores(browser, tmp_path):
    folder = tmp_path / "outputs" / "eval-1"
    journal = finished_run(folder, numbered([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])).folder / "samples.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:6]))

    def scores():
        run = EvaluationRun.load(folder)
        return f"{100 * summarise(run.samples, run.sets).sets[TOM].mean:.1f}"

    with FolderLock(folder), served(tmp_path / "outputs", served_page(poll_ms=POLL_MS)) as client:
        with opener(browser, client.server.address) as open_:
            results, listed, home = (open_(f"#{client.ids()['eval-1']}/{view}") for view in ("results", "sessions", ""))
            found(listed, "6 samples")
            score = results.locator("table.data tbody tr", has_text=TOM).locator("b").first
            score.wait_for()
            assert score.inner_text().split()[0] == scores() == "83.3"
            results.get_by_role("button", name=TOM, exact=True).click()
            results.locator("nav", has_text="live").wait_for()
            with journal.open("a") as file:
                file.writelines(lines[6:])
            found(listed, "8 samples")
            results.locator("table.data b", has_text=scores()).first.wait_for()
            assert score.inner_text().split()[0] == scores() == "62.5" and results.locator(f"#set-{TOM}").is_visible()
            assert "8 of 8" not in settled(home)
            head = results.locator("table.data").first.locator("thead th").first
            assert head.bounding_box()["width"] < 400  # the details below do not widen it


def test_a_supervised_run_shows_its_state_and_its_losses(browser, tmp_path):
    shutil.copytree(Path(__file__).with_name("sft_runs"), tmp_path / "runs")
    lines = [json.loads(line) for line in (tmp_path / "runs" / "finished" / "metrics.jsonl").read_text().splitlines()]
    losses = [f"{[line[key] for line in lines if key in line][-1]:.3f}" for key in ("train/loss", "val/loss")]
    with served(tmp_path / "runs", served_page()) as client, opener(browser, client.server.address) as open_:
        page = open_()
        rows = page.locator("table.data tbody tr")
        for name in ("finished", "stopped", "failed"):
            assert rows.filter(has=page.get_by_label(f"compare {name}")).inner_text().count(name) == 2  # path and state
        assert losses[0] in rows.filter(has=page.get_by_label("compare finished")).inner_text()
        page.get_by_role("link", name="finished", exact=True).click()
        page.locator("h1", has_text="finished").wait_for()
        assert page.locator(".tiles dd").all_inner_texts() == ["6", *losses]
        assert page.locator("nav a").all_inner_texts() == ["Runs", "Learning"]


def test_the_numbers_of_a_session_are_those_of_the_api(opened, viewed):
    run = viewed.run("first")
    columns = run("index")["columns"]
    place = columns["session"].index("hitom-1_3")
    page = opened(f"session/{columns['step'][place]}.hitom-1_3")
    record = run(f"session/{columns['id'][place]}")
    page.locator(f"{PANE} .score").wait_for()
    shown = page.inner_text(f"{PANE} .score")
    assert shown.startswith(f"{record['draft']['reward']:.2f} → {record['refined']['reward']:.2f}")
    assert STEPS >= columns["step"][place] and json.dumps(record["feedback"])[1:20] in json.dumps(page.inner_text(PANE))
