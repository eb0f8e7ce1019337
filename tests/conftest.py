"""Property tests draw the same examples in CI every time: a red CI is then about the change, not about the draw."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
