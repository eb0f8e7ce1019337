"""Load prompts: text files beside the tasks, with a version in the file name.

`soul/tasks/prompts/sotopia/judge.v2.txt` is `load_prompt("sotopia/judge", 2)`. A changed text gets a new version, and
the old file is deleted. The trace of a verdict records the versions of the judge's prompts, and their text is part of
the judge cache's key, so that no answer to an older version is used. A changed prompt of the policy raises
`Task.version`, too.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "tasks" / "prompts"
_FIELD = re.compile(r"\{\{(\w+)\}\}")


class Prompt(str):
    """The text of a prompt, with its id.

    Attributes:
        id: name and version, as in "sotopia/judge.v2".
    """

    id: str

    def __new__(cls, text: str, id: str) -> Prompt:
        prompt = super().__new__(cls, text)
        prompt.id = id
        return prompt

    def __reduce__(self) -> tuple[type[Prompt], tuple[str, str]]:
        # A training run's worker sends its questions to the judge actor, and pickle makes them again there.
        return Prompt, (str(self), self.id)

    def fill(self, **fields: str) -> str:
        """The text with every `{{name}}` replaced by its value, in one pass: values are not searched for fields.

        In a judge's prompt use this only for trusted text: text of a policy belongs in the judge's data.

        Raises:
            KeyError: the prompt has a field without a value.
        """
        return _FIELD.sub(lambda match: fields[match.group(1)], self)


@cache
def load_prompt(name: str, version: int = 1, folder: Path = FOLDER) -> Prompt:
    """Load a prompt: the file NAME.vVERSION.txt in the folder, SOUL's own by default.

    Raises:
        FileNotFoundError: there is no such prompt, or no such version.
    """
    path = folder / f"{name}.v{version}.txt"
    return Prompt(path.read_text(encoding="utf-8").strip(), f"{name}.v{version}")
