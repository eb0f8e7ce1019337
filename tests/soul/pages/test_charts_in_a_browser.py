"""The charts in a browser: zoom, smoothing, metrics, files that hold the numbers, counts that lead to sessions."""

import csv
import io
import re
import statistics

import numpy as np
import pytest
from PIL import Image

from soul.pages.page import served_page
from tests.soul.pages.browser_pages import needs_a_browser, opener, settled, until
from tests.soul.pages.charted_run import ADVICE, ALARM, ALARM_AT, STEPS, both, charted_run
from tests.soul.pages.served import served

pytestmark = needs_a_browser


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The sessions of a run, and a client of the server for it and another one."""
    root = tmp_path_factory.mktemp("outputs")
    sessions = charted_run(root / "mine")
    charted_run(root / "other")
    with served(root, served_page(poll_ms=200)) as client:
        for number in client.ids().values():
            client.server.api.catalogue.view(number).refresh()
        yield sessions, client


@pytest.fixture
def opened(browser, run):
    """Opens a view of the run; nothing may go wrong in it."""
    _, client = run
    mine = client.ids()["mine"]
    with opener(browser, client.server.address) as open_:
        yield lambda view: open_(f"#{mine}/{view}", width=1400)


def figure(page, title):
    settled(page)
    found = page.locator(".chart:visible").filter(has=page.get_by_role("heading", name=title, exact=True))
    found.locator("svg[role=slider]").wait_for()
    return found


def saved(page, press):
    with page.expect_download() as download:
        press()
    return download.value.path().read_bytes()


def table(page, name):
    """The rows of a table or chart as it is saved, as dicts."""
    press = page.get_by_role("button", name=f"Save {name} as CSV", exact=True).click
    return list(csv.DictReader(io.StringIO(saved(page, press).decode())))


def mean_by_step(sessions, value):
    known = {step: [value(one) for one in sessions if one.step == step] for step in range(1, STEPS + 1)}
    return [statistics.fmean([each for each in values if each is not None]) for values in known.values()]


def test_a_chart_gives_its_numbers_and_its_picture(opened, run):
    page = opened("learning")
    chart = figure(page, "Reward")
    rows = table(page, "Reward")
    assert [int(row["step"]) for row in rows] == list(range(1, STEPS + 1))
    expected = mean_by_step(run[0], lambda one: one.draft.reward)
    assert [float(row["draft"]) for row in rows] == pytest.approx(expected, abs=1e-6)
    assert {"draft low", "draft high", "draft n", "refined"} <= rows[0].keys()
    assert sum(int(row["draft n"]) for row in rows) == sum(one.draft.reward is not None for one in run[0])
    chart.locator("summary").click()
    chart.locator("tbody tr").last.wait_for()
    assert chart.locator("tbody tr").count() == STEPS
    picture = Image.open(io.BytesIO(saved(page, chart.get_by_role("button", name=re.compile("PNG")).click)))
    box = chart.locator("svg").bounding_box()
    assert picture.size[0] == pytest.approx(2 * box["width"], abs=2)
    pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for colour in ((11, 106, 168), (194, 65, 12)):  # the drafts' line and the refined one's, as style.css has them
        assert (np.abs(pixels - np.array(colour)).max(axis=1) < 8).sum() > 300
    labels = chart.locator("text.label > title").all_text_contents()
    assert sorted(labels) == ["draft", "refined"]
    assert chart.locator("svg").get_attribute("aria-valuenow") == str(STEPS)


def test_a_drag_zooms_all_charts_and_the_address_keeps_it(opened):
    page = opened("learning")
    chart = figure(page, "Reward")
    assert page.locator("text=Zoomed to >> visible=true").count() == 0
    ticks = {tick.text_content(): tick.bounding_box() for tick in chart.locator("text.tick").all()}
    middle = chart.locator("svg").bounding_box()
    at = [ticks[step]["x"] + ticks[step]["width"] / 2 for step in ("3", "6")]
    page.mouse.move(at[0] - 5, middle["y"] + 90)
    page.mouse.down()
    page.mouse.move(at[1] + 5, middle["y"] + 120, steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile("zoom=3-6"))
    chart.get_by_text("Zoomed to steps 3 to 6; the axis of values fits them.").wait_for()
    dots = lambda: figure(page, "hitom").locator("circle.dot.draft").count()  # noqa: E731
    until(lambda: dots() == 4)
    page.keyboard.press("Escape")
    until(lambda: dots() == STEPS and "zoom" not in page.url)
    page.go_back()
    until(lambda: dots() == 4 and "zoom=3-6" in page.url)
    chart.locator("svg").dblclick(position={"x": 300, "y": 100})
    until(lambda: dots() == STEPS and "zoom" not in page.url)
    assert "/learning" in page.url, "the first of two clicks opens no list"


def test_smoothing_keeps_the_raw_line_and_metrics_stand_side_by_side(opened, run):
    page = opened("learning?smooth=0.5")
    chart = figure(page, "Reward")
    assert chart.locator("polyline.draft.faint").count() == 1
    drawn = [
        [float(point.split(",")[1]) for point in chart.locator(f"polyline.draft{kind}").get_attribute("points").split()]
        for kind in (".faint", ":not(.faint)")
    ]
    total, weight, expected = 0.0, 0.0, []
    for value in drawn[0]:  # the mean in pixels is that of the values, because the axis is linear
        total, weight = 0.5 * total + 0.5 * value, 0.5 * weight + 0.5
        expected.append(total / weight)
    assert drawn[1] == pytest.approx(expected, abs=0.2)
    page.get_by_text("All metrics").click()
    page.get_by_placeholder("name or meaning").fill("norm of the gradient")
    page.get_by_role("checkbox", name="actor/grad_norm").check()
    page.wait_for_url(re.compile("actor"))
    page.get_by_placeholder("name or meaning").fill("queued")
    page.locator("input[value='judge/queued_s']").check()
    figure(page, "judge/queued_s").wait_for()
    figure(page, "actor/grad_norm").wait_for()
    rows = table(page, "judge/queued_s")
    assert [float(row["queued_s"]) for row in rows] == [0.5 * step for step in range(1, STEPS + 1)]
    assert "smooth=0.5" in page.url and "metrics=actor" in page.url


def test_settings_are_compared_with_another_run(opened, run):
    page = opened(f"learning?against={run[1].ids()['other']}")
    page.get_by_text("1 settings that differ").wait_for()
    (row,) = table(page, "Settings")
    assert (row["setting"], row["this run"], row["other"]) == ("files", '["a","mine"]', '["a","other"]')
    assert ALARM in page.locator(".lead").inner_text() and f"(step {ALARM_AT})" in page.locator(".lead").inner_text()


def test_feedback_is_counted_by_task_and_by_sentence(opened, run):
    sessions = run[0]
    page = opened("feedback")
    page.get_by_role("button", name="Save By task as CSV").wait_for()
    for row in table(page, "By task"):
        known = both(sessions, row["task"])
        best = max(
            value
            for one in sessions
            if one.task == row["task"]
            for value in (one.draft.reward, one.refined and one.refined.reward)
            if value is not None
        )
        same = [one for one, gain in known if gain == 0]
        expected = {
            "sessions": len(known),
            "helped": sum(gain > 0 for _, gain in known),
            "hurt": sum(gain < 0 for _, gain in known),
            "ignored": sum(one.draft.reward < best for one in same),
            "already best": sum(one.draft.reward == best for one in same),
        }
        assert {name: int(row[name]) for name in expected} == expected
        read = [one for one, _ in known if one.draft.given and one.refined.given]
        changed = [one for one in read if one.draft.given != one.refined.given]
        right = [one for one in changed if one.refined.given in ("A. box", "C. hall")]
        if read:
            assert (int(row["answer changed"]), int(row["to the right one"])) == (len(changed), len(right))
    for row in table(page, "Repeated sentences"):
        gains = [gain for one, gain in both(sessions) if row[""] in one.feedback]
        assert int(row["sessions"]) == len(gains) and float(row["mean gain"]) == pytest.approx(
            statistics.fmean(gains), abs=1e-6
        )
    rows = table(page, "Share of the sessions with both rewards")
    for row in rows:
        gains = [gain for one, gain in both(sessions) if one.step == int(row["step"])]
        assert float(row["helped"]) == pytest.approx(sum(gain > 0 for gain in gains) / len(gains))
        assert sum(float(row[name]) for name in ("helped", "hurt", "ignored", "already best")) == pytest.approx(1)
    line = page.locator("tr").filter(has_text=ADVICE[0])
    count = line.locator("a").inner_text()
    line.locator("a").click()
    page.locator(".pager").get_by_text(re.compile(rf"\b{count}\b")).first.wait_for()


def test_costs_and_judge_count_what_the_sessions_used(opened, run):
    sessions = run[0]
    page = opened("costs")
    lead = page.locator(".lead")
    whole = sum(40.0 + step for step in range(1, STEPS + 1))
    until(lambda: lead.inner_text())
    assert f"rollout takes {round(100 * 20 * STEPS / whole)} %" in lead.inner_text()
    for row in table(page, "Calls by role"):
        uses = [one.usage[row["role"]] for one in sessions]
        expected = {"requests": "requests", "from the cache": "cache_hits", "waiting, all": "queued_s"}
        assert {name: float(row[name]) for name in expected} == {
            name: pytest.approx(sum(getattr(use, key) for use in uses)) for name, key in expected.items()
        }
        assert "cost" not in row, "no price is known"
    rows = table(page, "Requests by role")
    assert [float(row["judge"]) for row in rows] == [
        3 * sum(one.step == step for one in sessions) for step in range(1, STEPS + 1)
    ]
    page = opened("judge")
    found = {row["cause"]: int(row["sessions"]) for row in table(page, "Failures by cause")}
    causes = [one.draft.failure.cause for one in sessions if one.draft.failure]
    assert found == {cause: causes.count(cause) for cause in set(causes)}
    assert page.locator(".events li").all_inner_texts() == [
        f"Step {ALARM_AT}, alarm {ALARM}: ditto/share_copied is above 0.3."
    ]
