"""What the tests of the viewer's page share: two runs, their server, and pages in which nothing may go wrong."""

import re

import pytest

from soul.pages.page import served_page
from tests.soul.pages.browser_pages import until
from tests.soul.pages.invented_run import add_hostile, training
from tests.soul.pages.served import served
from tests.soul.pages.viewed_pages import COUNT, POLL_MS, STEPS


@pytest.fixture(scope="module")
def viewed(tmp_path_factory):
    """A server's client for the runs "first", with a hostile session, and "second", which is a step shorter."""
    root = tmp_path_factory.mktemp("outputs")
    training(root / "first", STEPS)
    add_hostile(root / "first", STEPS)
    training(root / "second", STEPS - 1, seed=7)
    with served(root, served_page(poll_ms=POLL_MS)) as client:
        client.ids = {one["name"]: one["id"] for one in client.json("/api/folders")["folders"]}
        until(lambda: len(client.run("first")("index")["columns"].get("id", ())) == COUNT)
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
