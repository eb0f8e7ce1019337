"""Importing this installs our attention, head and engine. verl does so wherever it builds a model (`external_lib`)."""

import ditto.model.attention  # noqa: F401  (registers `packed` with transformers)
import ditto.model.engine  # noqa: F401  (registers itself with verl)
from ditto.model import chunked_models
from ditto.model.prefix_tree import micro_batches


def install() -> None:
    """Register the models with a chunked head, and our cut of micro-batches. Calling it again changes nothing."""
    chunked_models.register()
    micro_batches.install()


install()
