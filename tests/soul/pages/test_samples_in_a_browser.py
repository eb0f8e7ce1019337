"""The report as a reader uses it, in headless Chromium, opened from the disk.

Promise under test: it sorts, filters, opens and links; hostile text stays text; nothing leaves the page; it can be read
in the dark, on a narrow screen and on paper.
"""

import re

import pytest

from soul.evaluate.numbers.results import breakdowns, summarise
from soul.evaluate.report import write_html
from soul.evaluate.tables import run_table
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.evaluate.finished_samples import TOM
from tests.soul.pages.browser_pages import (
    column,
    contrast_of,
    found,
    luminance,
    needs_a_browser,
    opener,
    until,
)
from tests.soul.pages.hostile_samples import HOSTILE, MINE, lines

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = needs_a_browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    run = finished_run(tmp_path_factory.mktemp("run"), lines())
    found = summarise(run.samples, run.sets)
    return write_html(run, found, breakdowns(run, found))


@pytest.fixture
def opened(browser, report):
    """Opens the report; at the end nothing has been asked for but the file, and nothing went wrong in it."""
    with opener(browser, report) as open_:
        yield open_


def samples(page, **filters):
    page.click("#to-samples")
    found(page, "267 samples")
    for name, value in filters.items():
        page.locator(f"[name={name}]").fill(value) if name in ("text", "low", "high") else page.select_option(
            f"[name={name}]", value
        )
    return page


def sets_shown(page):
    return [name for name in page.locator("#results-table .opener:visible").all_inner_texts()]


# ---- the table


def test_a_column_sorts_down_and_up_and_back_to_the_cards_order(opened):
    page = opened()
    order = run_table.ordered(["hitom", "sotopia", "fantom", MINE])
    assert sets_shown(page) == order == ["sotopia", "fantom", "hitom", MINE]
    head = page.locator("#results-table > thead th", has_text="score")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert sets_shown(page) == ["hitom", MINE, "sotopia", "fantom"]  # 50.3, 50.0, 10.0; none comes last
    assert not page.locator("tr.dimension:visible").count()
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert sets_shown(page) == ["sotopia", MINE, "hitom", "fantom"]
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "none" and sets_shown(page) == order
    assert page.locator("tr.dimension:visible").count() == 3
    page.click("#results-table > thead >> text=invalid")
    assert sets_shown(page)[:2] == ["fantom", "sotopia"] and head.get_attribute("aria-sort") == "none"
    assert page.locator(".averages").inner_text().startswith("macro average, 3 of 4 sets")


def test_an_opened_line_shows_its_groups_and_leads_to_their_samples(opened):
    page = opened()
    opener = page.locator("button.opener", has_text="hitom")
    assert opener.get_attribute("aria-expanded") == "false"
    opener.focus()
    page.keyboard.press("Enter")
    assert opener.get_attribute("aria-expanded") == "true"
    detail = page.locator("tr.detail:visible")
    groups = detail.locator("table", has_text="By order of belief").locator("tbody th").all_inner_texts()
    assert groups == [str(value) for value in range(12)]
    page.click("#results-table > thead >> text=score")  # what is open moves with its line
    assert page.locator("tr.set-line", has_text="hitom").evaluate("row => row.nextElementSibling.hidden") is False
    detail.locator("button.link", has_text=re.compile("^11$")).click()
    found(page, "21 of 267 samples")
    assert {int(n) % 12 for n in column(page, "number")} == {11} and page.input_value("[data-kind=order]") == "11"
    page.go_back()
    detail.locator("button.link", has_text="timeout").click()
    found(page, "65 of 267 samples")
    assert page.input_value("[name=state]") == "cause:timeout" and page.input_value("[name=set]") == TOM


# ---- the samples


def test_samples_are_filtered(opened):
    page = samples(opened(), set="sotopia")
    found(page, "3 of 267 samples")
    page.select_option("[name=state]", "failed")
    found(page, "1 of 267 samples")
    assert column(page, "reward") == ["–"] and column(page, "state") == ["timeout"]
    page.click("text=Clear")
    found(page, "267 samples")
    assert page.input_value("[name=set]") == "" and not page.locator("[data-kind]").count()
    page.select_option("[name=state]", "contentless")
    found(page, "1 of 267 samples")
    page.select_option("[name=state]", "")
    page.fill("[name=low]", "10")
    page.fill("[name=high]", "50")
    found(page, "67 of 267 samples")  # hitom's 65 of 50.0, sotopia's 30.0 and 25.0; none that failed
    page.select_option("[name=set]", TOM)
    page.select_option("[data-kind=order]", "3")
    found(page, "22 of 267 samples")


def test_a_sample_opens_and_shows_all_of_it_as_text(opened):
    page = samples(opened(), state="contentless")
    found(page, "1 of 267 samples")
    page.click("#list tbody td.set a")
    page.wait_for_selector("#sample .score")
    shown = HOSTILE.replace("\ud83d", "\ufffd")

    def texts(where):
        return [text.replace("\ud83d", "\ufffd") for text in page.locator(where).all_text_contents()]

    assert texts("#sample .turn.assistant .said") == [shown, "(nothing)"]
    assert texts("#sample .turn.system .said") == texts("#sample blockquote") == [shown]
    assert texts("#sample .record dt") == texts("#sample .record dd") == [shown]
    assert texts("#sample .metrics dt") == [shown] and shown in texts("#sample table.part th")
    assert texts("#sample h3")[0] == f"Seat {shown}"
    assert not page.locator("#sample .turn.system .said").is_visible()  # collapsed
    page.click("#sample .turn.system summary")
    assert page.locator("#sample .turn.system .said").is_visible()
    user = page.locator("#sample .turn.user .said")
    assert len(user.text_content()) < 1100
    page.click("text=Show all 5,000 characters")
    assert len(user.text_content()) == 5000
    assert page.locator("img").count() == 0
    assert page.locator("script:not([type])").count() == 0


def test_the_keys_move_close_and_search(opened):
    page = samples(opened(), set=TOM)
    found(page, "261 of 267 samples")
    page.locator("[name=set]").blur()
    page.keyboard.press("ArrowDown")
    until(lambda: page.url.endswith(f"#{TOM}/0/0?set={TOM}"))
    page.click("#list tbody tr:nth-child(98) a")
    until(lambda: "row 97" in page.inner_text("#sample h2"))
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    until(lambda: "row 100" in page.inner_text("#sample h2"))
    assert page.inner_text("#page") == "2 / 3" and page.url.endswith(f"#{TOM}/100/0?set={TOM}")
    page.keyboard.press("ArrowLeft")
    until(lambda: "row 99" in page.inner_text("#sample h2"))
    page.keyboard.press("Escape")
    assert not page.locator("#sample").is_visible()
    assert page.evaluate("document.activeElement.textContent") == TOM  # back where it was
    page.keyboard.press("/")
    page.keyboard.type("zebra/")
    assert page.input_value("[name=text]") == "zebra/"
    page.keyboard.press("ArrowDown")  # in a field it is the field's
    assert not page.locator("#sample").is_visible()


# ---- what it looks like


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(opened, scheme):
    page = opened(f"#{TOM}/2/0", color_scheme=scheme)
    page.wait_for_selector("#sample .failure")
    behind = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (behind > 0.8) if scheme == "light" else (behind < 0.02)
    for where in (
        "body",
        "nav .of",
        "#sample .score strong",
        "#sample .tags",
        ".small",
        "#list td.given .last",
        "#filters label",
    ):
        ink = luminance(page.locator(where).first.evaluate("element => getComputedStyle(element).color"))
        contrast = contrast_of(ink, behind)
        assert contrast >= 4.5, f"{where}: {contrast:.1f}"


def test_every_control_has_a_name(opened):
    page = opened(f"#{TOM}/0/0")
    page.wait_for_selector("#sample .score")
    unnamed = page.evaluate("""() => {
        const labels = (e) => [...(e.labels ?? [])].map((label) => label.textContent).join();
        const named = (e) => (e.getAttribute("aria-label") || e.textContent || labels(e)).trim() !== "";
        const all = [...document.querySelectorAll("button, a, input, select, summary")];
        return [all.length, all.filter((e) => !named(e)).map((e) => e.outerHTML)];
    }""")
    assert unnamed[0] > 150 and not unnamed[1]
    assert page.locator("th:not([scope])").count() == 0


# ---- what it may not do


TRIES = {
    "fetch": "url => fetch(url).then(() => 'got', () => 'refused')",
    "image": "url => new Promise((done) => { const i = new Image(); i.onload = i.onerror = done; i.src = url; })",
    "frame": "url => { const f = document.createElement('iframe'); f.src = url; document.body.append(f); }",
    "style": "url => { document.body.style.backgroundImage = `url(${url})`; }",
    "script": "url => { const s = document.createElement('script'); document.body.append(s); s.src = url; }",
    "form": "url => { const f = document.createElement('form'); f.action = url; document.body.append(f); f.submit(); }",
}
