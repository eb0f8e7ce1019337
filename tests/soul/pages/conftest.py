"""What the tests of the pages share: a folder with trainings and an evaluation, its server, and pages of it."""

import pytest

from soul.pages.page import served_page
from tests.soul.evaluate.finished_run import finished_run
from tests.soul.pages.browser_pages import POLL_MS, opener, until
from tests.soul.pages.hostile_samples import lines
from tests.soul.pages.invented_run import COUNT, STEPS, add_hostile, training
from tests.soul.pages.served import served


@pytest.fixture(scope="session")
def outputs(tmp_path_factory):
    """The trainings "first", with a hostile session, and "second", a step shorter; the evaluation "base"."""
    root = tmp_path_factory.mktemp("outputs")
    training(root / "first", STEPS)
    add_hostile(root / "first", STEPS)
    training(root / "second", STEPS - 1, seed=7)
    finished_run(root / "base", lines())
    return root


@pytest.fixture(scope="session")
def viewed(outputs):
    """A client of their server; the indexes are built."""
    with served(outputs, served_page(poll_ms=POLL_MS)) as client:
        until(lambda: len(client.run("first")("index")["columns"].get("id", ())) == COUNT)
        until(lambda: client.run("second")("index")["columns"].get("id"))
        yield client


@pytest.fixture
def opened(browser, viewed):
    """Opens a view of a run; at the end only the server was asked, and nothing went wrong in the page."""
    ids = viewed.ids()
    with opener(browser, viewed.server.address) as open_:
        yield lambda view="learning", run="first", **options: open_(f"#{ids[run]}/{view}" if view else "", **options)
