"""What verl imports in every process that builds a model (`model.external_lib: ditto.model.install`)."""

import ditto.model.attention  # noqa: F401  (registers `packed` with transformers)
import ditto.model.engine  # noqa: F401  (registers itself with verl)
from ditto.model import chunked_models


def install() -> None:
    """Register the models with a chunked head with transformers; a second time changes nothing."""
    chunked_models.register()


install()
