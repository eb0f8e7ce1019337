"""Property tests draw the same examples in CI every time: a red CI is then about the change, not about the draw.

None has a deadline: how long one example takes says more about who else uses the machine.
"""

import os

from hypothesis import settings

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
