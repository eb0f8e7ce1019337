"""Pages as a reader opens them: in headless Chromium, where nothing may go wrong and only known addresses are asked."""

import os
import shutil
import time
from contextlib import contextmanager

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
needs_a_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: install chromium, or name one with CHROMIUM=..."
)
POLL_MS = 150  # between two looks of a served page
NOW = "main > section:not([hidden])"  # the view that is shown
PANE = f"{NOW} article.pane"  # the open session


@contextmanager
def chromium():
    """The browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def opener(browser, start):
    """A function that opens an address below `start`; at the end nothing else was asked, and nothing went wrong."""
    pages, asked, wrong = [], [], []

    def open_(link="", width=1440, height=900, **options):
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        page.set_default_timeout(8000)
        pages.append(page)
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto(f"{start}{link}")
        return page

    yield open_
    for page in pages:
        page.close()
    others = [url for url in asked if not url.startswith((start, "blob:"))]
    assert not wrong and not others


def until(condition, seconds=8.0):
    """Wait without a script in the page, which its policy would refuse."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def found(page, text):
    """Wait until the list says this."""
    page.locator(f"{NOW} .pager [role=status]", has_text=text).wait_for()
    assert page.inner_text(f"{NOW} .pager [role=status]") == text


def column(page, name):
    """The texts in a column of the list."""
    return page.locator(f"{NOW} .list tbody td.{name}").all_inner_texts()


def settled(page):
    """Wait until the view is drawn and its text stays the same; returns the text."""
    texts = [""]

    def same():
        texts.append(page.inner_text("main"))
        page.wait_for_timeout(100)
        return texts[-1] == texts[-2] and texts[-1].strip() and "Loading" not in texts[-1]

    page.locator(NOW).wait_for()
    until(same)
    return texts[-1]
