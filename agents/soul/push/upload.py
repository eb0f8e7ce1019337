"""An upload: the files that go to the hub and those that stay here. No file that looks like a key is among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from soul.errors import SoulError
from soul.push.keys import like_keys

CARD = "README.md"


class NotPushable(SoulError):
    """A folder is nothing to upload, or holds something that must not be published."""


@dataclass(frozen=True)
class Upload:
    """What is uploaded.

    Attributes:
        kind: the kind of repository.
        files: their paths in the folder.
        left_out: entries of the folder that stay here.
        remarks: sentences for the user.
        made: files that are made for the hub, by their paths there.
        withheld: why the files may only go to a private repository; empty if they may go to a public one.
    """

    kind: Literal["model", "dataset"]
    folder: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    made: Mapping[str, bytes] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Each file's path on the hub -> its bytes."""
        made = {name: len(content) for name, content in self.made.items()}
        return made | {name: (self.folder / name).stat().st_size for name in self.files}

    def check_keys(self) -> None:
        """Look for keys in the files of the folder.

        Raises:
            NotPushable: one looks like a key or holds one.
        """
        if keys := like_keys(self.folder, self.files):
            places = "; ".join(f"{name}, {place}" for name, place in keys.items())
            raise NotPushable(
                f"{self.folder}: {places}: this looks like a key or a password. Nothing was uploaded. Remove the line, "
                "the row or the file."
            )

    def check_private(self, private: bool) -> None:
        """Check that files which must not be published go to a private repository.

        Raises:
            NotPushable: they do not.
        """
        if self.withheld and not private:
            raise NotPushable(
                f"{self.folder}: {'; '.join(self.withheld)}. These files cannot go to a public repository: take them "
                "out of the folder, or name a private repository and add --private. Nothing was uploaded."
            )
