"""The viewer as a researcher uses it, in headless Chromium, with the real server.

Promise under test: every view opens by its address and by keys, and leads to the sessions behind its numbers.
"""

import re

import pytest

from soul.evaluate.numbers.results import breakdowns, summarise
from soul.evaluate.report import write_html
from soul.pages.page import served_page
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM, numbered
from tests.soul.pages.browser_pages import column, found, needs_a_browser, until
from tests.soul.pages.invented_run import sessions_of
from tests.soul.pages.served import served
from tests.soul.pages.viewed_pages import CHART, COUNT, STEPS, curve_points, shown

pytest.importorskip("playwright.sync_api")
pytestmark = needs_a_browser


# ---- the views


def test_the_curves_say_whether_the_run_learns(opened, viewed):
    page = opened()
    page.wait_for_selector(CHART)
    assert [text for text in page.locator("#learning-view > .charts >> nth=0 >> h3").all_inner_texts()] == [
        "Reward, 95 % bands over prompts",
        "Gap: refined minus draft, 95 % band",
        "Refined against draft: share of sessions",
        "Entropy of the policy",
        "Gradient norm",
        "Failures: share of sessions",
    ]
    curve = viewed.run("first")("overview")["curves"]["all"]
    assert curve_points(page) == STEPS and page.locator(".event.resume").count() > 0
    page.locator(".chart svg[role=slider]").first.focus()
    page.keyboard.press("End")
    said = page.locator(".said-values").first.inner_text()
    mean = curve["draft"]["mean"][-1]
    assert said.startswith(f"step {STEPS} · draft {mean:.4g}") and "validation" in said
    page.locator(".chart summary >> nth=0").click()
    until(lambda: page.locator(".chart >> nth=0 >> tbody tr").count() == STEPS)
    page.keyboard.press("Escape")
    page.select_option("[name=task]", "hitom")
    until(lambda: page.evaluate("location.hash").endswith("/learning?task=hitom"))
    page.locator(".chart svg[role=slider]").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")  # the sessions of the step
    found(page, f"16 of {COUNT} sessions")
    assert set(column(page, "step")) == {"1"} and set(column(page, "set")) == {"hitom"}


def test_draft_against_refined_leads_to_the_sessions(opened, viewed):
    page = opened("feedback")
    cell = page.get_by_role("button", name=re.compile("^draft 0, refined 1: "))
    cell.wait_for()
    count = int(cell.locator("b").inner_text())
    sessions = [s for step in range(1, STEPS + 1) for s in sessions_of(step) if s.task == "hitom"]
    assert count == sum(s.draft.reward == 0 and s.refined.reward == 1 for s in sessions) > 0
    cell.press("Enter")
    found(page, f"{count} of {COUNT} sessions")
    assert set(column(page, "draft")) == {"0"} and set(column(page, "refined")) == {"1"}
    page.go_back()
    page.wait_for_selector("#feedback-view svg circle.bubble")  # sotopia has many rewards
    page.locator("section[aria-label='most hurt'] >> text=all").click()
    page.wait_for_selector("#list td.gain")
    gains = [float(text.lstrip("▼ ")) for text in column(page, "gain")]
    assert gains == sorted(gains) and gains[-1] < 0 and "state=hurt" in page.url


def test_a_session_shows_what_changed_and_what_was_withheld(opened):
    page = opened("session/2.hitom-1_3")
    page.wait_for_selector("#sample .three")
    assert page.locator("#sample .three section").count() == 3
    assert page.locator("#sample del >> nth=0").inner_text() == "she did not see it"
    assert page.locator("#sample ins >> nth=0").inner_text() == "nobody told her"
    assert (
        page.locator("#sample mark").inner_text() == "[withheld]"
        and page.locator(".guard del").inner_text() == "garden"
    )
    table = page.locator("[aria-label='Training sequences'] tbody tr")
    assert [row.split("\t")[0] for row in table.all_inner_texts()] == ["draft", "refined base", "refined feedback"]
    assert "hitom/judge@2" in page.inner_text("#sample")
    page.goto(page.url.replace("2.hitom-1_3", "2.sotopia-1_3"))  # one scene of two people
    page.wait_for_selector("#sample .turns-by-number")
    speakers = page.locator(".turns-by-number .who").all_inner_texts()
    assert speakers == ["Ann policy"] * 2 + ["Ben partner"] * 2 + ["Ann policy"] * 2
    assert page.locator("#sample del").all_inner_texts() == ["must"]
    assert [text.strip() for text in page.locator("#sample ins").all_inner_texts()] == ["would", "please"]
    page.goto(page.url.replace("2.sotopia-1_3", "2.userllm-1_3"))  # two seats
    page.wait_for_selector("#sample >> text=Alice asks")
    assert page.locator("#sample ins").all_inner_texts() == ["kindly", "kindly"]
    page.click("text=Prompts of 2 seats")
    assert page.locator("#sample .prompt h4").all_inner_texts() == ["Seat Alice", "Seat Bob"]


def test_group_and_row_of_a_session(opened):
    page = opened("session/2.sotopia-1_3")
    page.click("text=its group (8 sessions)")
    page.wait_for_selector("#group-view tbody a")
    assert (
        page.locator("#group-view circle.dot.draft").count()
        == page.locator("#group-view circle.dot.refined").count()
        == 8
    )
    assert page.locator("#group-view tbody a[aria-current=true]").inner_text() == "session 4"
    assert page.locator("[aria-label='Sessions of the group'] tbody tr").count() == 24
    page.click("text=this row over the steps")
    page.wait_for_selector(".step-line")
    assert page.locator(".step-line h3").all_inner_texts() == [f"STEP {step}" for step in range(1, STEPS + 1)]
    page.click(".step-line a >> nth=1")
    page.wait_for_selector("#sample .turns-by-number")
    assert "/session/2.sotopia-1_0" in page.url
    page.go_back()
    page.go_back()
    page.locator("#group-view").wait_for()


def test_costs_lead_to_the_longest_sessions_of_a_step(opened):
    page = opened("costs")
    page.wait_for_selector("[aria-label='Judge calls by role'] tbody tr")
    calls = page.locator("[aria-label='Judge calls by role'] tbody tr").inner_text().split("\t")
    assert calls[:2] == ["judge", f"{3 * COUNT:,}"]
    assert page.locator("rect.stack.part-1 >> visible=true").count() >= STEPS
    page.locator(".plot rect.stack.part-1").nth(2).click()
    found(page, f"48 of {COUNT} sessions")
    assert "sort=-seconds" in page.url and set(column(page, "step")) == {"3"}


def test_two_runs_over_each_other(opened, viewed):
    page = opened("against")
    page.select_option("#against-view select", viewed.ids["second"])
    page.wait_for_selector("#against-view svg[role=slider]")
    shown(page, f"Both runs played {6 * (STEPS - 1)} prompts in the same step")
    found = viewed.run("first")(f"against/{viewed.ids['second']}")["tasks"]
    lines = page.locator("[aria-label='The same prompts'] tbody tr").all_inner_texts()
    assert [line.split("\t")[:2] for line in lines] == [[f"{one['task']}, {one['kind']}", "6"] for one in found]
    page.click("[aria-label='Largest differences'] tbody a >> nth=0")
    page.wait_for_selector("#against-view .sides h4")
    assert [text.split()[0] for text in page.locator("#against-view .sides h4").all_inner_texts()] == [
        "first",
        "second",
    ] * 2


def test_an_evaluations_report_opens_from_the_list(browser, tmp_path):
    run = finished_run(tmp_path / "base", numbered([1.0, 0.0], TOM))
    results = summarise(run.samples, run.sets)
    write_html(run, results, breakdowns(run, results))
    with served(tmp_path, served_page()) as client:
        page = browser.new_page()
        page.goto(client.server.address)
        page.set_default_timeout(8000)
        page.click("[aria-label=Evaluations] tbody a")
        page.wait_for_selector("#results-table")
        page.click("#to-samples")  # its own script runs
        found(page, "2 samples")
        page.go_back()
        page.go_back()
        page.wait_for_selector("text=Evaluations and comparisons of two models")
        page.close()


# ---- keys, addresses, search


def test_a_link_brings_back_filters_order_and_the_session(opened):
    page = opened("session/3.hitom-0_2?set=hitom&split=step&from=2&to=3&sort=-draft")
    page.wait_for_selector("#sample .score")
    assert page.inner_text("#found") == f"32 of {COUNT} sessions"
    assert page.locator("#list tr[aria-current=true]").count() == 1
    assert (
        page.input_value("[name=from]") == "2" and page.locator("th.draft").get_attribute("aria-sort") == "descending"
    )
    page.goto(page.url.replace("3.hitom-0_2", "9.nothing"))
    shown(page, "There is no session 9.nothing in this run.")
    page.goto(page.url.split("#")[0] + "#0000/learning")
    shown(page, "This cannot be shown: there is no run 0000 in this folder")
