"""Use the cache alone where the hub cannot be reached: its client would try for 48 s, for every file."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

logger = logging.getLogger(__name__)
PATIENCE_S = 3.0


def use_cache_without_hub(path: str) -> None:
    """Make the hub's client look into its cache only, if this model comes from the hub and it cannot be reached.

    This holds for this process and for all that it starts.
    """
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if Path(path).exists() or constants.HF_HUB_OFFLINE or address.scheme in getproxies():
        return
    host, port = address.hostname or "", address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((host, port), timeout=PATIENCE_S).close()
    except OSError as error:
        logger.warning("The hub cannot be reached (%s: %s); its cache is used alone", host, error)
        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True
