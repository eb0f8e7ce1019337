"""What the tests of the pages share: a folder with trainings and an evaluation, its server, and pages of it."""

from contextlib import closing

import pytest

from soul.annotate import Annotation
from soul.examples.endpoint import answer
from soul.pages.catalogue import Catalogue
from soul.pages.extensions import Comparisons, annotate, play
from soul.pages.page import served_page
from soul.playground import Playground
from soul.testing import FakeOpenAI
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
def written(tmp_path_factory):
    """The folder in which playground and annotation keep what people do: kept/ and labels/."""
    return tmp_path_factory.mktemp("written")


@pytest.fixture(scope="session")
def viewed(outputs, written):
    """A client of their server, with comparisons, a playground over HTTP and an annotation; the indexes are built."""
    labels = Annotation.create(written / "labels", [outputs / "first"], "draft-refined", count=6)
    with FakeOpenAI(answer) as fake:
        settings = [f"judge.base_url={fake.url}", "judge.api_key_env=none"]
        with closing(Playground.from_arguments({"hitom": None}, settings, written / "kept")) as ground:
            parts = {"play": play(ground), "annotate": annotate(labels)}
            page = served_page(poll_ms=POLL_MS, extensions=list(parts))
            with served(outputs, page, compare=Comparisons(Catalogue(outputs)), **parts) as client:
                until(lambda: len(client.run("first")("index")["columns"].get("id", ())) == COUNT)
                until(lambda: client.run("second")("index")["columns"].get("id"))
                yield client


@pytest.fixture
def opened(browser, viewed):
    """Opens a view of a run, or of none; at the end only the server was asked, and nothing went wrong in the page."""
    ids = viewed.ids()
    with opener(browser, viewed.server.address) as open_:

        def open_view(view="learning", run="first", **options):
            place = f"{ids[run]}/{view}" if run else view.format(**ids)
            return open_(f"#{place}" if place else "", **options)

        yield open_view
