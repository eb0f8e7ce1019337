"""Stamps: a JSON file beside a result that says what the result was made of.

    {"inputs": {"model Qwen/Qwen3-8B": "...", "ROWS": "1024"}, "finished": true, "hash": "..."}

A command that runs again compares the stamp with its present inputs. It then knows whether the result is up to date,
was interrupted, or was made of something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from soul.errors import SoulError
from soul.files.json_object import read_object
from soul.files.whole_file import write_whole

Inputs = Mapping[str, str]  # what a result was made of -> its fingerprint
_SHOWN = 60  # characters shown of a value


class BadStamp(SoulError):
    """The file that says what a result was made of is damaged."""


@dataclass(frozen=True)
class Stamp:
    """The inputs that a result was made of.

    Attributes:
        finished: False while the work runs, and if it was interrupted.
    """

    inputs: Inputs
    finished: bool = False

    @classmethod
    def read(cls, path: Path, remedy: str) -> Stamp | None:
        """The stamp in a file; None if there is no such file.

        Raises:
            BadStamp: the file is damaged; `remedy` says what to do then.
        """
        if not path.is_file():
            return None
        content = read_object(path, BadStamp, remedy)
        if not isinstance(content.get("inputs"), dict):
            raise BadStamp(f"{path} names no inputs. {remedy}")
        return cls(content["inputs"], content.get("finished") is True)

    def write(self, path: Path) -> None:
        """Write the file; folders are created."""
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(json.dumps(dict(self.inputs), sort_keys=True).encode()).hexdigest()[:16]
        write_whole(path, json.dumps({**asdict(self), "hash": digest}, indent=1))

    def differences(self, now: Inputs) -> Iterator[str]:
        """Changes since, one phrase each."""
        for name in sorted({*self.inputs, *now}):
            old, new = self.inputs.get(name), now.get(name)
            if old is None:
                yield f"{name} is new"
            elif new is None:
                yield f"{name} is gone"
            elif old != new:
                yield f"{name} has changed ({_short(old)} -> {_short(new)})"


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}..."
