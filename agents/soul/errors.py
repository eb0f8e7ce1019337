"""The exceptions that this package raises on purpose.

`SoulError` is an error that the user can fix (a bad row, an unknown task, a full disk). Its message names file, row,
field and remedy, and its class sets the command's exit code (`soul.cli.error_border`). `SessionError` is a failure
inside one session. The driver turns it into a `Failure`, which is masked and counted, so that a failed session never
becomes a number and never stops the others. `Mistakes` collects what several checks refuse, so that one start of a
command tells all of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

Cause = Literal[
    "rate_limit",  # 429
    "server_error",  # 5xx, or an error that the endpoint reports with status 200
    "timeout",
    "connection",
    "empty",  # the endpoint answered without text
    "refusal",  # by the model, a content filter or a moderation (403)
    "truncated",  # the answer hit the token limit
    "invalid",  # not JSON, wrong schema, score out of range or NaN
    "auth",  # 401, 403, no credit (402)
    "not_found",  # 404: unknown model or path
    "bad_request",  # any other 4xx that a retry cannot fix
    "contentless",  # the policy said nothing that could be judged
    "outage",  # the circuit breaker tripped: the endpoint as a whole is down
    "budget",  # judge.budget_usd is spent
    "quorum",  # too few members of a jury gave a verdict
    "leak",  # the feedback consisted only of the gold answer
    "policy",  # the policy could not generate (engine error)
    "deadline",  # refine.episode_deadline_s has passed
    "too_long",  # a prompt or an episode did not fit
    "task_error",  # an exception in the task's own code
]

TRANSIENT: frozenset[Cause] = frozenset({"rate_limit", "server_error", "timeout", "connection"})
CONTENT: frozenset[Cause] = frozenset({"empty", "refusal", "truncated", "invalid"})
PERMANENT: frozenset[Cause] = frozenset({"auth", "not_found", "bad_request"})
SYSTEMIC: frozenset[Cause] = frozenset({"outage", "budget"})
# Failures that say nothing about the answer: another try may succeed once the endpoint, the key or the budget is back.
# A missed quorum is among them, because the members that gave a verdict then answer from the cache.
INFRASTRUCTURE: frozenset[Cause] = TRANSIENT | SYSTEMIC | {"auth", "not_found", "policy", "deadline", "quorum"}


class SoulError(Exception):
    """An error that the user can fix; the message says where it is and what to do.

    Attributes:
        exit_code: the exit code of a command that ends with this error. 2: the command or its input is wrong, and
            nothing was started. 1: the run started and could not continue.
    """

    exit_code: ClassVar[int] = 2


class UnknownTask(SoulError):
    """There is no task with this name."""


class BadRow(SoulError):
    """A record of a task file does not satisfy the task's schema."""


class MissingKey(SoulError):
    """The environment variable of an endpoint's key is not set, or its value can be no key."""


class NotInstalled(SoulError):
    """A module needs a package of one of our extras, which is not installed."""


class BadSettings(SoulError):
    """A setting of the judge gateway or an option of a task is unknown or invalid."""


class BadCache(SoulError):
    """The judge's cache file cannot be used."""


class FolderInUse(SoulError):
    """Another process is writing to this folder."""


class RunFailed(SoulError):
    """A run started and could not continue."""

    exit_code = 1


class OutOfSpace(RunFailed):
    """A disk is full. Files that were complete before still are."""


class SessionError(Exception):
    """Something went wrong inside one session.

    Args:
        cause: the class of the failure, one of `Cause`.
        detail: one line for the trace and the logs; never contains a key.
    """

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause: Cause = cause
        self.detail = detail


class JudgeFailure(SessionError):
    """The judge gave no verdict. It never becomes a score: the session is masked and counted."""


class PolicyFailure(SessionError):
    """The policy gave no usable turn (engine error, prompt too long)."""


def one_line(error: BaseException, limit: int | None = None) -> str:
    """The error's message on one line, for another message; at most its first `limit` characters."""
    return " ".join(str(error).split())[:limit]


class SeveralMistakes(SoulError):
    """Several checks failed; each error is one paragraph of the message."""

    def __init__(self, errors: list[SoulError]) -> None:
        paragraphs = (f"{number}. {type(error).__name__}: {error}" for number, error in enumerate(errors, 1))
        super().__init__("\n\n".join([f"{len(errors)} things are wrong.", *paragraphs]))
        self.errors = errors


class Mistakes:
    """The errors of checks that do not need each other's results."""

    def __init__(self) -> None:
        self._errors: list[SoulError] = []

    @contextmanager
    def of(self) -> Iterator[None]:
        """Collect the error of the check in this block."""
        try:
            yield
        except SeveralMistakes as error:
            self._errors += error.errors
        except SoulError as error:
            self._errors.append(error)
        except Exception:
            if not self._errors:  # a check may rely on what an earlier one has refused
                raise

    def report(self) -> None:
        """Raise what was collected, if anything was.

        Raises:
            SoulError: the only error as it was, or all of them as `SeveralMistakes`.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise SeveralMistakes(self._errors)
