"""The viewer as a researcher uses it, in headless Chromium, with the real server and a training that goes on.

Promise under test: every view opens by its address and by keys; hostile text stays text; a new step grows the curves
while the open session stays; what cannot be read is said; the exported file shows the same page.
"""

import json
import random
import re
import time

import pytest

from ditto.run.run_folder import RunFolder
from soul.view.page import served_page, write_export
from tests.soul.evaluate.report.browser_pages import (
    column,
    contrast_of,
    found,
    luminance,
    needs_a_browser,
    opener,
    until,
)
from tests.soul.evaluate.report.hostile_samples import HOSTILE
from tests.soul.view.invented_run import add_hostile, binary, sessions_of, training, write_step
from tests.soul.view.served import served

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = needs_a_browser
STEPS, OF_STEP = 4, 48
COUNT = STEPS * OF_STEP + 24 + 1  # with the validation and the hostile session
POLL_MS = 150
CHART = "#learning-view svg[role=slider]"


@pytest.fixture(scope="module")
def viewed(tmp_path_factory):
    root = tmp_path_factory.mktemp("outputs")
    training(root / "first", STEPS)
    add_hostile(root / "first", STEPS)
    training(root / "second", STEPS - 1, seed=7)
    with served(root, served_page(poll_ms=POLL_MS)) as client:
        client.root = root
        client.ids = {one["name"]: one["id"] for one in client.json("/api/folders")["folders"]}
        until(lambda: len(client.run("first")("index")["columns"]["id"]) == COUNT)
        until(lambda: client.run("second")("index")["columns"].get("id"))
        yield client


@pytest.fixture
def opened(browser, viewed):
    """Opens a view of a run; at the end only the server was asked, and nothing went wrong in the page."""
    pages, asked, wrong = [], [], []

    def open_(view="learning", run="first", width=1400, client=viewed, **options):
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.set_default_timeout(8000)
        pages.append(page)
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto(client.server.address + (f"#{client.ids[run]}/{view}" if view else ""))
        return page

    yield open_
    for page in pages:
        page.close()
    assert not wrong and all(re.match(r"http://127\.0\.0\.1:\d+/", url) for url in asked)


def curve_points(page, kind="draft"):
    """The number of points of the first chart's curve."""
    return len((page.locator(f".chart >> nth=0 >> .curve.{kind}[points]").get_attribute("points") or "").split())


def shown(page, text):
    page.locator(f"text={text} >> visible=true").first.wait_for()


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
    assert said.startswith(f"step {STEPS} · draft {mean:.4g} (") and "validation" in said
    page.locator(".chart summary >> nth=0").click()
    assert page.locator(".chart >> nth=0 >> tbody tr").count() == STEPS
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
    assert "would you please" in " ".join(page.locator("#sample ins").all_inner_texts()).replace("  ", " ") or (
        page.locator("#sample ins").count() > 0
    )
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
    assert page.locator("#group-view table >> nth=1 >> tbody tr").count() == 24
    page.click("text=this row over the steps")
    page.wait_for_selector(".step-line")
    assert page.locator(".step-line h3").all_inner_texts() == [f"STEP {step}" for step in range(1, STEPS + 1)]
    page.click(".step-line a >> nth=1")
    page.wait_for_selector("#sample .turns-by-number")
    assert "/session/2.sotopia-1_0" in page.url
    page.go_back()
    page.go_back()
    assert page.locator("#group-view").is_visible()


def test_costs_and_the_straggler(opened):
    page = opened("costs?step=3")
    page.wait_for_selector(".gantt .straggler")
    calls = page.locator("[aria-label='Judge calls by role'] tbody tr").inner_text().split("\t")
    assert calls[:2] == ["judge", f"{3 * COUNT:,}"]
    assert page.locator("rect.stack.part-1 >> visible=true").count() > STEPS  # times of steps, and of sessions
    page.locator(".gantt-part summary").click()
    rows = page.locator("[aria-label='Sessions of a step'] tbody tr").all_inner_texts()
    (straggler,) = [row for row in rows if "▶" in row]
    assert straggler.startswith("▶ userllm") and "refined judge" in page.inner_text(
        "[aria-label='Sessions of a step'] thead"
    )


def test_two_runs_over_each_other(opened, viewed):
    page = opened("against")
    page.select_option("#against-view select", viewed.ids["second"])
    page.wait_for_selector("#against-view svg[role=slider]")
    shown(page, f"{OF_STEP * (STEPS - 1)} sessions of both runs")
    page.click("[aria-label='Largest differences'] tbody a >> nth=0")
    page.wait_for_selector("#against-view .sides h4")
    assert [text.split()[0] for text in page.locator("#against-view .sides h4").all_inner_texts()] == [
        "first",
        "second",
    ] * 2


# ---- keys, addresses, search


def test_keys_alone_suffice(opened):
    page = opened("")
    page.wait_for_selector("text=Trainings")
    page.locator("a >> text=first").press("Enter")
    page.wait_for_selector(CHART)
    page.keyboard.press("3")
    found(page, f"{COUNT} sessions")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#sample .score")
    page.keyboard.press("ArrowRight")
    until(lambda: page.evaluate("location.hash").endswith("/session/1.hitom-0_1"))
    page.keyboard.press("Escape")
    assert not page.locator("#sample").is_visible()
    page.keyboard.press("/")
    page.keyboard.type("Kindly.")
    found(page, f"{STEPS * 16 + 8} of {COUNT} sessions")  # found by the server, in the refined episodes of userllm
    assert "text=Kindly." in page.evaluate("location.hash")


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


# ---- a training that goes on


def test_a_new_step_grows_the_curves_and_keeps_the_open_session(browser, opened, tmp_path):
    folder = training(tmp_path / "live", 2)
    with served(tmp_path, served_page(poll_ms=POLL_MS)) as client:
        client.ids = {one["name"]: one["id"] for one in client.json("/api/folders")["folders"]}
        page = opened("session/2.hitom-0_1?set=hitom&sort=-draft", run="live", client=client)
        page.wait_for_selector("#sample .score")
        page.locator("#sample").evaluate("pane => { pane.scrollTop = 120; pane.dataset.same = 'yes'; }")
        found(page, "40 of 120 sessions")
        # A running step: one session is there, the next line is half.
        lines = [binary(3, 0, k, random.Random(k)).to_line() for k in range(2)]
        (folder / "traces" / "live").mkdir()
        live = folder / "traces" / "live" / "step_000003.1.jsonl"
        live.write_text(f"{lines[0]}\n{lines[1][:200]}")
        found(page, "41 of 121 sessions")
        assert page.locator("#list td.state >> text=running").count() == 1
        live.unlink()
        write_step(folder, 3, sessions_of(3))
        found(page, "56 of 168 sessions")
        assert page.locator("#list td.state >> text=running").count() == 0
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


def test_another_token_or_host_gets_nothing(viewed, browser):
    page = browser.new_page()
    assert page.goto(viewed.server.address.replace(viewed.server.token, "wrong")).status == 404
    assert page.goto(viewed.server.address).status == 200
    page.close()
    status, _, body = viewed.answer("/", Host="evil.example")
    assert status in (403, 421) and b"<html" not in body


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (390, "light"), (1280, "dark")])
def test_every_view_fits_a_narrow_screen_and_the_dark(opened, viewed, width, scheme):
    page = opened(width=width, color_scheme=scheme)
    second = viewed.ids["second"]
    views = {
        "learning": CHART,
        "feedback": ".bubble",
        "sessions": "#list tbody td",
        "group/2.hitom-1_3": "#group-view tbody a",
        "row/2.hitom-1_3": ".step-line",
        "costs": ".gantt .straggler",
        f"against/{second}": "#against-view svg[role=slider]",
        f"session/{STEPS}.hitom-9_0": "#sample .failure",
        "session/2.userllm-1_3": "#sample .turns-by-number",
    }
    for view, sign in views.items():
        page.goto(f"{viewed.server.address}#{viewed.ids['first']}/{view}")
        page.wait_for_selector(sign)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        unnamed = page.evaluate("""() => [...document.querySelectorAll("button, a, input, select, summary, [role=slider]")]
            .filter((e) => !(e.getAttribute("aria-label") || e.textContent || [...(e.labels ?? [])].map((l) => l.textContent).join()).trim())
            .map((e) => e.outerHTML)""")
        assert not unnamed, view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_curves_can_be_read_in_light_and_dark(opened, scheme):
    page = opened(color_scheme=scheme)
    page.wait_for_selector(CHART)
    behind = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (behind > 0.8) if scheme == "light" else (behind < 0.02)
    texts = {".legend .key": "color", ".said-values": "color", "#learning-view .kind": "color", "text.tick": "fill"}
    curves = {f"polyline.curve.{kind}": "stroke" for kind in ("draft", "refined", "gap", "better", "same", "worse")}
    for least, colours in ((4.5, texts), (3.0, curves)):  # the bounds of WCAG 2.2 for text and for graphics
        for where, name in colours.items():
            ink = page.locator(where).first.evaluate(f"element => getComputedStyle(element).{name}")
            assert contrast_of(luminance(ink), behind) >= least, where


def test_a_large_run_opens_in_time(browser, tmp_path):
    """51,200 sessions: the list shows within 3 s, and the page needs less than 150 MB."""
    page, took, megabytes = open_large_export(browser, tmp_path)
    found(page, "51,200 sessions")
    assert took < 3 and megabytes < 150
    assert page.locator("#list tbody tr").count() == 100
    page.close()


def open_large_export(browser, tmp_path):
    """An export with 51,200 sessions in its list; the page, the seconds until the list, and its heap in MB."""
    count = 51_200
    steps = [1 + i // 512 for i in range(count)]
    numbers = {key: [round(0.1 * (i % 11), 1) for i in range(count)] for key in ("draft", "refined", "advantage_draft")}
    texts = {
        "split": ["step"],
        "task": ["hitom", "coser"],
        "file": ["a.parquet"],
        "prompt": [f"p{k}" for k in range(6400)],
        "cause": [None],
    }
    coded = {key: {"values": values, "codes": [i % len(values) for i in range(count)]} for key, values in texts.items()}
    rest = {
        key: [0] * count for key in ("redactions", "disagree", "valid", "dropped", "live", "tokens", "cost", "seconds")
    }
    ids = {"id": list(range(1, count + 1)), "step": steps, "number": [i % 64 for i in range(count)], "row": [0] * count}
    names = {
        "session": [f"0123456789abcdef0123456789abcdef_{i}" for i in range(count)],
        "advantage_refined": [None] * count,
    }
    overview = {"revision": 1, "run": {}, "metrics": {}, "curves": {}, "events": [], "calls": []}
    file = write_export(tmp_path / "large.html", overview, {**ids, **numbers, **coded, **rest, **names}, ["{}"])
    page = browser.new_page()
    begin = time.monotonic()
    page.goto(f"{file.as_uri()}#run/sessions")
    page.wait_for_selector("#list tbody tr")
    took = time.monotonic() - begin
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap = session.send("Runtime.getHeapUsage")
    return page, took, (heap["usedSize"] + heap.get("backingStorageSize", 0)) / 1e6


# ---- the exported file


def test_an_exported_file_shows_the_same_page(browser, opened, viewed, tmp_path):
    run = viewed.run("first")
    columns = run("index")["columns"]
    lines = [json.dumps(run(f"session/{number}"), ensure_ascii=True) for number in columns["id"]]
    file = write_export(tmp_path / "export.html", run("overview?from="), columns, lines, name="first")
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


def settled(page):
    """Wait until the page's text stays the same and nothing is loading."""
    texts = [""]

    def same():
        texts.append(page.inner_text("main"))
        page.wait_for_timeout(120)
        return texts[-1] == texts[-2] and "Loading" not in texts[-1] and texts[-1]

    until(same)
