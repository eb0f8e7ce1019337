"""Collect what several checks refuse, so that one start of a command tells all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from soul.errors import SoulError


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
