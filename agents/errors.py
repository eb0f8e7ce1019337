"""Every exception that this package raises on purpose.

`SoulError` is a mistake a user can mend before a run starts (a bad row, an unknown task): its text names file, row,
field and remedy. `SessionError` is what can go wrong inside one session; the driver turns it into a `Failure` that
is masked and counted, so one bad session never becomes a number and never stops the others.
"""

from typing import Literal

Cause = Literal[
    "rate_limit",  # 429
    "server_error",  # 5xx
    "timeout",
    "connection",
    "empty",  # the endpoint answered without text
    "refusal",
    "truncated",  # the answer hit the endpoint's token limit
    "invalid",  # not JSON, wrong schema, score out of range or NaN
    "auth",  # 401, 403
    "not_found",  # 404: unknown model or path
    "bad_request",  # other 4xx that no retry heals
    "contentless",  # the policy said nothing that could be judged
    "outage",  # the circuit breaker tripped: the endpoint as a whole is down
    "budget",  # judge.budget_usd is spent
    "quorum",  # too few members of a jury gave a verdict
    "leak",  # the feedback was all gold answer
    "policy",  # the policy could not generate (engine error)
    "deadline",  # refine.episode_deadline_s is over
    "too_long",  # a prompt or an episode did not fit
    "task_error",  # an exception in the task's own code
]

TRANSIENT: frozenset[Cause] = frozenset({"rate_limit", "server_error", "timeout", "connection"})
CONTENT: frozenset[Cause] = frozenset({"empty", "refusal", "truncated", "invalid"})
PERMANENT: frozenset[Cause] = frozenset({"auth", "not_found", "bad_request"})
SYSTEMIC: frozenset[Cause] = frozenset({"outage", "budget"})


class SoulError(Exception):
    """A mistake in the input that the user can mend; the message says where it is and what to do."""


class UnknownTask(SoulError):
    """No task of that name exists here."""


class BadRow(SoulError):
    """A record of a task file does not satisfy the task's schema."""


class MissingKey(SoulError):
    """The environment variable that should hold an endpoint's key is not set."""


class BadSettings(SoulError):
    """A setting of the judge gateway or an option of a task is unknown or cannot be."""


class BadCache(SoulError):
    """The judge's cache file cannot be used."""


class SessionError(Exception):
    """Something went wrong inside one session.

    Args:
        cause: the class of the failure, one of `Cause`.
        detail: one line for the trace and the logs; never holds a key.
    """

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause: Cause = cause
        self.detail = detail


class JudgeFailure(SessionError):
    """The judge gave no verdict. Never stands for a score: the session is masked and counted."""


class PolicyFailure(SessionError):
    """The policy gave no usable turn (engine error, prompt too long)."""
