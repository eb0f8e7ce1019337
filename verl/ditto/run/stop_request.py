"""How the driver asks the trainer, perhaps on another node, to stop after its current step.

Both sides use Ray's key-value store, because the trainer's actor is busy with `fit` and cannot answer calls.
"""

from __future__ import annotations

import ray
from ray.experimental import internal_kv

_BEGUN, _ENDED, _SAVE_UNTIL = "steps_begun", "steps_ended", "save_until"


def report_first_step() -> None:
    """Trainer: report that the first step has begun, so from now on there is something to save."""
    _put(_BEGUN, "1")


def steps_have_begun() -> bool:
    """Driver: whether the trainer's first step has begun."""
    return _get(_BEGUN) is not None


def report_last_step() -> None:
    """Trainer: report that the last step has ended and is saved or dropped; only uploads are left."""
    _put(_ENDED, "1")


def steps_have_ended() -> bool:
    """Driver: whether the trainer's last step has ended."""
    return _get(_ENDED) is not None


def request_stop(save_until: float) -> None:
    """Driver: ask the trainer to stop after its current step.

    Args:
        save_until: the trainer saves a checkpoint if it can begin before this time (seconds since the epoch).
    """
    _put(_SAVE_UNTIL, str(save_until))


def save_until() -> float | None:
    """Trainer: the deadline of the driver's request, in seconds since the epoch; None if there is no request."""
    value = _get(_SAVE_UNTIL)
    return None if value is None else float(value)


def _key(name: str) -> bytes:
    return f"ditto:{ray.get_runtime_context().get_job_id()}:{name}".encode()


def _put(name: str, value: str) -> None:
    internal_kv._internal_kv_put(_key(name), value.encode())


def _get(name: str) -> str | None:
    value: bytes | None = internal_kv._internal_kv_get(_key(name))
    return None if value is None else value.decode()
