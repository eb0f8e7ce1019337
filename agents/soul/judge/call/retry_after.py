"""How long an endpoint asks to wait: the header Retry-After, or the more exact retry-after-ms."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import openai

MAX_RETRY_AFTER_S = 60.0
HALF_OF_ITS_RESOLUTION_S = 0.5  # a date is rounded up to whole seconds: half a second too late on average
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


def retry_after(error: BaseException | None) -> float | None:
    """The seconds that the endpoint asks to wait, at most a minute; None if it names no valid time.

    Retry-After is a number of seconds or an HTTP date; retry-after-ms (OpenAI and Azure) is a number of milliseconds.
    """
    if not isinstance(error, openai.APIStatusError):
        return None
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if _NUMBER.fullmatch(value):
            return min(MAX_RETRY_AFTER_S, float(value) * unit)
    header = headers.get("retry-after", "")
    try:
        at = parsedate_to_datetime(header)
        left = at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return None  # neither a number nor a valid date
    return min(MAX_RETRY_AFTER_S, max(0.0, left.total_seconds() - HALF_OF_ITS_RESOLUTION_S))
