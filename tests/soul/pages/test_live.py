"""What the viewer's page does with a run that goes on, with hostile texts, with many sessions, and as one file.

Promise under test: a new step grows the curves while the open session stays; hostile text stays text; every view fits a
narrow screen; 51,200 sessions open in time; the exported file shows the same page.
"""

import json
import random

import pytest

from soul.pages.export import write_run_report
from soul.pages.page import served_page, write_export
from tests.soul.pages.browser_pages import found, needs_a_browser, opener, until
from tests.soul.pages.invented_run import attempt, binary, said, session, sessions_of, training, write_step
from tests.soul.pages.served import served
from tests.soul.pages.viewed_pages import CHART, COUNT, POLL_MS, STEPS, curve_points

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = needs_a_browser


# ---- a training run that goes on


def test_a_new_step_grows_the_curves_and_keeps_the_open_session(browser, opened, tmp_path):
    folder = training(tmp_path / "live", 2)
    with served(tmp_path, served_page(poll_ms=POLL_MS)) as client:
        client.ids = {one["name"]: one["id"] for one in client.json("/api/folders")["folders"]}
        page = opened("session/2.hitom-0_1?set=hitom&sort=-draft", run="live", client=client)
        page.wait_for_selector("#sample .score")
        page.locator("#sample").evaluate("pane => { pane.scrollTop = 120; pane.dataset.same = 'yes'; }")
        found(page, "40 of 120 sessions")
        # A running step: one session is there, the next line is half.
        records = [binary(3, 0, k, random.Random(k)) for k in range(2)]
        lines = [record.model_copy(update={"sequences": []}).to_line() for record in records]
        (folder / "traces" / "live").mkdir()
        live = folder / "traces" / "live" / "step_000003.1.jsonl"
        live.write_text(f"{lines[0]}\n{lines[1][:200]}")
        found(page, "41 of 121 sessions")
        assert page.locator("#list td.state >> text=running").count() == 1
        running = opened("session/3.hitom-0_0", run="live", client=client)
        running.wait_for_selector("#sample .score")
        assert running.locator("#sample [aria-label='Training sequences']").count() == 0
        live.unlink()
        write_step(folder, 3, sessions_of(3))
        found(page, "56 of 168 sessions")
        assert page.locator("#list td.state >> text=running").count() == 0
        running.wait_for_selector("#sample [aria-label='Training sequences']")  # the step is trained
        assert page.locator("#sample").evaluate("pane => [pane.dataset.same, pane.scrollTop]") == ["yes", 120]
        assert page.locator("#list tr[aria-current=true]").count() == 1 and "/session/2.hitom-0_1?" in page.url
        page.keyboard.press("1")
        page.wait_for_selector(CHART)
        page.locator(".chart svg[role=slider]").first.focus()
        page.keyboard.press("End")
        write_step(folder, 4, sessions_of(4))
        until(lambda: curve_points(page) == 4)
        assert page.evaluate("document.activeElement.getAttribute('role')") == "slider"
        # The run is resumed after step 2, and plays step 3 again.
        for step in (3, 4):
            (folder / "traces" / f"step_{step:06d}.jsonl").unlink()
        write_step(folder, 3, sessions_of(3, seed=99)[:8])
        until(lambda: curve_points(page) == 3)
        page.keyboard.press("3")
        page.click("text=Clear")
        found(page, "128 sessions")


# ---- hostile texts, a large run, looks


def test_hostile_texts_stay_text(opened, viewed):
    page = opened(f"session/{STEPS}.hitom-9_0")
    page.wait_for_selector("#sample .failure")
    mark = "</script><script>alert(1)</script>"
    assert mark in page.inner_text("#sample .failure") and mark in page.inner_text(".guard")
    assert mark in page.inner_text("#sample .three") and "no refined episode" in page.inner_text("#sample")
    page.click("text=its group")
    page.wait_for_selector("#group-view tbody a")
    page.click("text=this row over the steps")
    page.wait_for_selector(".step-line")
    assert mark in page.inner_text("#row-view header")
    assert page.locator("img").count() == 0 and page.locator("script:not([type])").count() == 0


def test_a_script_in_the_page_could_neither_insert_markup_nor_ask_others(browser, viewed):
    page = browser.new_page()
    page.goto(viewed.server.address)
    with pytest.raises(playwright.Error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<img src=x>'")
    other = viewed.server.address.replace("127.0.0.1", "localhost")  # the same server under another name
    ask = "url => fetch(url, { mode: 'no-cors' }).then(() => 'answered', () => 'refused')"
    assert page.evaluate(ask, viewed.server.address) == "answered"
    assert page.evaluate(ask, other) == "refused"
    page.close()


# ---- the exported file


def test_an_exported_file_shows_the_same_page(browser, opened, viewed, tmp_path):
    run = viewed.run("first")
    columns = run("index")["columns"]
    lines = [json.dumps(run(f"session/{number}"), ensure_ascii=True) for number in columns["id"]]
    file = write_export(tmp_path / "export.html", run("overview?from="), columns, columns["id"], lines, name="first")
    views = [
        "learning",
        "feedback",
        "session/2.hitom-1_3",
        "group/2.hitom-1_3",
        "row/2.hitom-1_3",
        "costs",
        f"session/{STEPS}.hitom-9_0",
    ]
    with opener(browser, file) as open_:
        exported, live = open_("#run/learning"), opened()
        exported.wait_for_function(
            "expected => document.getElementById('live').textContent === expected",
            arg=f"{len(lines)} sessions of the run",
        )
        for view in views:
            texts = []
            for page, address in (
                (exported, f"{file.as_uri()}#run/{view}"),
                (live, f"{live.url.split('#')[0]}#{viewed.ids['first']}/{view}"),
            ):
                page.goto(address)
                settled(page)
                texts.append(page.inner_text("main"))
            assert texts[0] == texts[1] and len(texts[0]) > 200, view
        exported.goto(f"{file.as_uri()}#run/sessions?text=kindly.")
        found(exported, f"{STEPS * 16 + 8} of {COUNT} sessions")


def test_a_report_counts_all_sessions_and_says_what_a_group_taught(browser, tmp_path):
    """The sessions with texts were chosen for their outcome: their shares say nothing about the run."""
    taught = {"draft": -0.968, "refined_base": 0.968, "refined_feedback": 0.0}
    size = {"seat": "policy", "prompt_tokens": 2, "response_tokens": 2}
    sequences = [{**size, "attempt": kind.split("_")[0], "kind": kind, "advantage": a} for kind, a in taught.items()]
    no_price = {"judge": {"calls": 3, "requests": 2, "cache_hits": 1, "unpriced": 2, "queued_s": 1.5}}

    def played(number, k, rewards):
        draft, refined = (attempt({"policy": said("Ask.", "Where?", "Here.")}, reward, 5.0) for reward in rewards)
        return session("hitom", 1, number, k, draft, refined, sequences=sequences, usage=no_price)

    groups = [[played(0, k, (0.0, 1.0)) for k in range(8)], *([played(n, 0, (0.0, 0.0))] for n in range(1, 40))]
    write_step(tmp_path / "run", 1, [one for group in groups for one in group])
    with opener(browser, write_run_report(tmp_path / "run")) as open_:
        page = open_("#run/feedback")
        page.get_by_role("button", name="draft 0, refined 0: 39 sessions").wait_for()
        assert page.get_by_role("button", name="draft 0, refined 1: 8 sessions").count() == 1
        page.goto(page.url.replace("feedback", "sessions?state=text"))
        found(page, "3 of 47 sessions")
        page.goto(page.url.split("#")[0] + "#run/group/1.hitom-0_0")
        page.wait_for_selector("[aria-label='What the objective saw'] tbody tr")
        lines = page.locator("[aria-label='What the objective saw'] tbody tr").all_inner_texts()
        assert [line.split("\t")[3] for line in lines] == ["-0.968", "0.968", "0"]
        assert ["no learning signal" in line for line in lines] == [False, False, True]
        assert "nothing to learn" not in page.inner_text("#group-view")
        page.goto(page.url.split("#")[0] + "#run/costs")
        page.wait_for_selector("text=Requests to the judges")
        table = page.locator("[aria-label='Judge calls by role']")
        assert table.locator("tbody tr").inner_text().split("\t")[:5] == ["judge", "141", "0", "94", "47"]
        assert "71 s" in table.inner_text() and "$" not in page.inner_text("#costs-view")
        page.goto(page.url.split("#")[0] + "#run/session/1.hitom-30_0")
        page.wait_for_selector("#found >> text=This file has all numbers")


def settled(page):
    """Wait until the page's text stays the same and nothing is loading."""
    texts = [""]

    def same():
        texts.append(page.inner_text("main"))
        page.wait_for_timeout(120)
        return texts[-1] == texts[-2] and "Loading" not in texts[-1] and texts[-1]

    until(same)
