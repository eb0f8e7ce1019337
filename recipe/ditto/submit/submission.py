"""What a backend makes of a training: a command, perhaps with a document. It is shown, or run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from soul.cli.redaction import redact
from soul.errors import BadSettings

DOCUMENT = "TASK.yaml"  # stands in the command for the file with the document
LONGEST_NAME = 32  # KubeRay appends to it, and Kubernetes allows 63 characters


@dataclass(frozen=True)
class Submission:
    """How a training is submitted.

    Attributes:
        command: the words; DOCUMENT among them stands for a temporary file with the document.
        keys: how the keys travel, for people.
        document: YAML.

    Raises:
        BadSettings: it contains the value of a key.
    """

    command: Sequence[str]
    keys: str
    document: str = ""

    def __post_init__(self) -> None:
        text = f"{shlex.join(self.command)}\n{self.document}"
        if redact(text) != text:
            raise BadSettings(
                "What would be submitted contains the value of a key (not shown here): a variable of run_rl.sh or an "
                "override repeats it. Put each key in a variable of its own, such as OPENAI_API_KEY."
            )

    def shown(self) -> str:
        """What a dry run prints."""
        return "\n".join([*([self.document] if self.document else []), shlex.join(self.command), self.keys])

    def send(self) -> int:
        """Run the command. Returns its exit code.

        Raises:
            BadSettings: the command is not installed.
        """
        path = [str(Path(sys.executable).parent), *os.get_exec_path()]  # `ray` is in this environment
        program = shutil.which(self.command[0], path=os.pathsep.join(path))
        if program is None:
            raise BadSettings(f"{self.command[0]} is not on the PATH. Install it, or run this where it is installed.")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / DOCUMENT
            file.write_text(self.document, encoding="utf-8")
            words = [str(file) if word == DOCUMENT else word for word in self.command[1:]]
            return subprocess.call([program, *words])


def plain_name(name: str) -> str:
    """A name that SkyPilot and Kubernetes accept: lower-case letters, digits and hyphens, a letter first."""
    name = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    return (name if name[:1].isalpha() else f"run-{name}")[:LONGEST_NAME].strip("-")
