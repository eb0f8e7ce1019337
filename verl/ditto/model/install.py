"""What verl imports in every process that builds a model (`model.external_lib: ditto.model.install`)."""

from ditto.model import chunked_models


def install() -> None:
    """Register what is ours with transformers; a second time changes nothing."""
    chunked_models.register()


install()
