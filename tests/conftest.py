"""Property tests draw the same examples in CI every time: a red CI is then about the change, not about the draw.

None has a deadline: how long one example takes says more about who else uses the machine.

Ctrl-C is heard even where the tests run in the background of a shell, which ignores it: tests send it to processes that
they start, and those would inherit the deafness.
"""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.real_model import real_model

__all__ = ["real_model"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if find_spec("hypothesis"):  # tests of attention and head also run on a bare GPU machine
    from hypothesis import settings

    settings.register_profile("here", deadline=None)
    settings.register_profile("ci", deadline=None, derandomize=True)
    settings.load_profile("ci" if os.environ.get("CI") else "here")

GPU_PINS = Path(__file__).parent / "gpu_pins"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of pages in a browser, and those of the GPU's requirements."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        if item.path.is_relative_to(GPU_PINS):
            item.add_marker("gpu")
