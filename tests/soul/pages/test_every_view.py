"""Every view, wide and light, narrow and dark: accessible, not wider than the screen, and asking for nothing else.

Promise under test: axe has no finding; a keyboard alone is enough; paper has all texts.
"""

import pytest

from soul.pages.export import export
from tests.soul.pages.browser_pages import NOW, PANE, found, needs_a_browser, opener, settled, until
from tests.soul.pages.exported import Exported
from tests.soul.pages.invented_run import COUNT, STEPS

pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="bash scripts/env auto dev installs it")
pytestmark = needs_a_browser
TRAINING = {
    **{name: name for name in ("learning", "feedback", "judge", "costs")},
    "one turn": "session/2.hitom-1_3",
    "scene": "session/2.sotopia-1_3?set=sotopia&by=group",
    "hostile": f"session/{STEPS}.hitom-9_0",
    "group": "group/2.sotopia-1_3",
    "row": "row/2.hitom-1_3",
}
EVALUATION = {
    "results": "results?open=hitom&open=sotopia",
    "hostile sample": "session/hitom.260.0",
}
OTHERS = {
    "home": "",
    "comparison": "compare/{first},{second}",
    "rows": "compare/{first},{second}/rows/0/sotopia",
    **{view: view for view in ("play", "annotate/Ann")},
}
RUNS = {None: OTHERS, "first": TRAINING, "base": EVALUATION}
VIEWS = {name: (view, run) for run, views in RUNS.items() for name, view in views.items()}


# All rules on a wide, light page; on a narrow, dark one those that depend on width and colours.
DEFAULT = {"resultTypes": ["violations"]}
FEW = {**DEFAULT, "runOnly": ["color-contrast", "target-size", "scrollable-region-focusable"]}
SHOWN = [(1440, "light", DEFAULT), (390, "dark", FEW)]


@pytest.mark.parametrize(("view", "run"), VIEWS.values(), ids=VIEWS)
def test_axe_has_no_finding_and_the_page_fits(opened, view, run):
    page = opened(view, run)
    for width, scheme, rules in SHOWN:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        settled(page)
        if "session/" in view:
            page.locator(f"{PANE} .score").wait_for()
        page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert not page.locator("#problem").is_visible()
        found = axe.Axe().run(page, options=rules).response["violations"]
        assert not [(one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"]) for one in found]
    assert page.locator("img").count() == 0 and page.locator("script:not([type])").count() == 0


def focused(page):
    """What the focused element says."""
    return page.evaluate("document.activeElement.innerText ?? document.activeElement.name").strip()


def tab_to(page, wanted, most=60):
    """Press Tab until the focused element says this."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if focused(page) == wanted:
            return
    raise AssertionError(f"{wanted} is not reached by Tab")


def test_a_keyboard_alone_is_enough(opened):
    page = opened("", None)
    settled(page)
    tab_to(page, "first")
    page.keyboard.press("Enter")
    page.locator("h1", has_text="first").wait_for()
    page.keyboard.press("3")
    found(page, f"{COUNT} sessions")
    page.keyboard.press("?")
    legend = page.locator("dialog[open]")
    assert "close the entry" in legend.inner_text()
    page.keyboard.press("Escape")
    assert not legend.count()
    page.keyboard.press("/")
    page.keyboard.type("she did not see it")
    hits = f"{STEPS * 16 + 8} of {COUNT} sessions"
    found(page, hits)
    page.get_by_role("searchbox", name="Search").fill("case hitom-2-1-3")  # it is in a call of the judge
    found(page, f"1 of {COUNT} sessions")
    page.get_by_role("searchbox", name="Search").fill("she did not see it")
    found(page, hits)
    page.keyboard.press("ArrowDown")  # in a field it is the field's
    page.keyboard.press("Escape")
    assert not page.locator(PANE).is_visible()
    page.keyboard.press("j")
    titles = [page.inner_text(f"{PANE} h2")]
    for key in ("ArrowDown", "j", "k", "ArrowUp"):
        page.keyboard.press(key)
        until(lambda: page.inner_text(f"{PANE} h2") != titles[-1])
        titles.append(page.inner_text(f"{PANE} h2"))
    assert titles[3] == titles[1] and titles[4] == titles[0] and len(set(titles[:3])) == 3
    page.keyboard.press("Escape")
    assert not page.locator(PANE).is_visible() and page.evaluate("document.activeElement.closest('tr') !== null")
    page.keyboard.press("Enter")  # the row's link has the focus again
    page.locator(f"{PANE} .score").wait_for()
    found(page, hits)
    page.keyboard.press("1")
    page.locator("svg[role=slider]").first.wait_for()
    page.keyboard.press("h")
    page.locator(f"{NOW}[aria-label='All runs']").wait_for()


def test_paper_has_all_texts_of_the_open_session_with_labels(opened):
    page = opened(TRAINING["scene"], width=1000)
    page.locator(f"{PANE} .score").wait_for()
    page.emulate_media(media="print")
    shown = page.inner_text(PANE).lower()
    texts = ["you must lend me the car", "would you please lend me", "Maybe. When are you back?", "Ask politely."]
    for text in [*texts, "draft", "refined", "feedback", "Cost and time"]:
        assert text.lower() in shown, text
    for hidden in ("nav", f"{NOW} .filters", f"{NOW} .list", f"{PANE} .bar button"):
        assert not page.locator(hidden).first.is_visible(), hidden
    cut = """pane => [...pane.querySelectorAll("*")].filter((e) => e.checkVisibility() &&
        getComputedStyle(e).overflowY !== "visible" && e.scrollHeight > e.clientHeight + 1).map((e) => e.outerHTML)"""
    assert not page.locator(PANE).evaluate(cut)
    assert page.pdf().startswith(b"%PDF")


# ---- files show what the server shows


@pytest.mark.parametrize(("run", "views"), [("first", TRAINING), ("base", EVALUATION)])
def test_an_exported_file_shows_the_same_page(browser, opened, viewed, outputs, tmp_path, run, views):
    file = export(outputs / run, tmp_path / "export.html")
    number = viewed.ids()[run]
    with opener(browser, file.as_uri()) as open_:
        exported, live = open_(), opened(next(iter(views)), run)
        texts = [settled(page) for page in (exported, live)]
        assert texts[0] == texts[1]
        for name, view in views.items():
            if run == "first" and view.partition("/")[0] in ("session", "group", "row"):
                continue  # which sessions have texts is chosen; see below
            exported.goto(f"{file.as_uri()}#run/{view}")
            live.goto(f"{viewed.server.address}#{number}/{view}")
            # A list of a file names the first sessions that have a text there; their counts are the same.
            texts = [settled(page).split("Improved by feedback")[0] for page in (exported, live)]
            assert texts[0] == texts[1] and len(texts[0]) > 100, name
        if run == "first":
            exported.goto(f"{file.as_uri()}#run/sessions?text=is+it+right")  # in the calls of the judge
            found(exported, f"{len(Exported(file).sessions())} of {COUNT} sessions")
