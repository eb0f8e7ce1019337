"""Pages on the disk as a reader opens them: in headless Chromium, which must ask for nothing and report no error."""

import os
import re
import shutil
import time
from contextlib import contextmanager

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
needs_a_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: install chromium, or name one with CHROMIUM=..."
)


@contextmanager
def chromium():
    """The browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def opener(browser, file, others=()):
    """A function that opens a file; at the end nothing else was asked for, and nothing went wrong in it.

    Args:
        others: files that links in it may lead to.
    """
    pages, asked, wrong = [], [], []

    def open_(link="", width=1400, height=900, **options):
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        pages.append(page)
        page.on("request", lambda request: asked.append(request.url.partition("#")[0]))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.goto(f"{file.as_uri()}{link}")
        return page

    yield open_
    for page in pages:
        page.close()
    assert set(asked) <= {file.as_uri(), *(other.as_uri() for other in others)} and not wrong


def until(condition, seconds=8.0):
    """Wait without a script in the page, which its policy would refuse."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def found(page, text):
    """Wait until the list says this."""
    until(lambda: page.inner_text("#found") == text)


def column(page, name):
    """The texts in a column of the list."""
    return page.locator(f"#list tbody td.{name}").all_inner_texts()


def luminance(colour):
    """The relative luminance of a computed colour, 0 to 1."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast_of(one, other):
    """The contrast of two luminances, 1 to 21."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
