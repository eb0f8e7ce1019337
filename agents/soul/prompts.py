"""Judge prompts: text files beside the tasks, each with a version in its name, so that a verdict tells what was asked.

`agents/soul/tasks/prompts/sotopia/judge.v1.txt` is `load_prompt("sotopia/judge", 1)`. A prompt that changes its meaning
gets a new file; the old one stays, for runs that used it. The text is what is sent, and part of the judge cache's key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "tasks" / "prompts"
_FIELD = re.compile(r"\{\{(\w+)\}\}")


class Prompt(str):
    """A prompt's text, which knows where it comes from.

    Attributes:
        id: "sotopia/judge.v1".
    """

    id: str

    def __new__(cls, text: str, id: str) -> Prompt:
        made = super().__new__(cls, text)
        made.id = id
        return made

    def fill(self, fields: Mapping[str, str]) -> Prompt:
        """Replace every `{{name}}`, in one pass: what is filled in is not looked at again.

        For our own words only (a rubric's range); what a policy wrote belongs in a judge's data.

        Raises:
            KeyError: the prompt names a field that is not given.
        """
        return Prompt(_FIELD.sub(lambda match: fields[match.group(1)], self), self.id)


@cache
def load_prompt(name: str, version: int = 1) -> Prompt:
    """Load a prompt.

    Raises:
        FileNotFoundError: there is no such prompt, or no such version.
    """
    path = FOLDER / f"{name}.v{version}.txt"
    return Prompt(path.read_text(encoding="utf-8").strip(), f"{name}.v{version}")
