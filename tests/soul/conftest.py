"""What the tests of pages in a browser share."""

import pytest

from tests.soul.pages.browser_pages import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched
