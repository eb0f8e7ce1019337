"""The index of a folder of figures: what was drawn, what was not and why, and the hashes of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soul.files.whole_file import write_whole

FILE = "index.md"


@dataclass
class Index:
    """Collects what a command writes.

    Attributes:
        sections: caption -> its files.
        missing: a sentence for each thing that is not there.
        sources: name, folder and hash of every run and evaluation.
    """

    sections: dict[str, list[Path]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    sources: list[tuple[str, Path, str]] = field(default_factory=list)

    def add(self, caption: str, files: Sequence[Path]) -> None:
        self.sections.setdefault(caption, []).extend(files)

    def write(self, folder: Path) -> Path:
        """Write it as Markdown."""
        lines = ["# Figures", ""]
        for caption, files in self.sections.items():
            lines += [f"- {caption} {', '.join(f'[{file.name}]({file.name})' for file in files)}"]
        if self.missing:
            lines += ["", "## Not drawn", "", *(f"- {sentence}" for sentence in self.missing)]
        lines += ["", "## Runs", "", "| name | folder | sha256 |", "|---|---|---|"]
        lines += [f"| {name} | `{source}` | `{sha256}` |" for name, source, sha256 in self.sources]
        write_whole(folder / FILE, "\n".join(lines) + "\n")
        return folder / FILE
