"""What the tests of the viewer's page know about the training runs that they open (conftest.py)."""

STEPS, OF_STEP = 4, 48  # of the longer training; sessions of a step
COUNT = STEPS * OF_STEP + 24 + 1  # its sessions, with the validation and the hostile one
POLL_MS = 150
CHART = "#learning-view svg[role=slider]"


def curve_points(page, kind="draft"):
    """The number of points of the first chart's curve."""
    return len((page.locator(f".chart >> nth=0 >> .curve.{kind}[points]").get_attribute("points") or "").split())


def shown(page, text):
    """Wait until the page shows this text."""
    page.locator(f"text={text} >> visible=true").first.wait_for()
