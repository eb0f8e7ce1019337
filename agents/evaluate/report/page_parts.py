"""Builds a page that holds all it needs: its script, its style, and the policy (CSP) that allows only these two."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

_HERE = Path(__file__).parent


def write_page(file: Path, pieces: Iterable[str]) -> None:
    """Write a page piece by piece. Readers see the whole new page, or the one that was there before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f"{file.suffix}.partial")
    with partial.open("w", encoding="utf-8", newline="") as out:
        out.writelines(pieces)
    os.replace(partial, file)


def script_of(names: Sequence[str]) -> str:
    """The script of a page: these files of script/, in this order."""
    return "\n".join(read(f"script/{name}.js") for name in names)


def read(name: str) -> str:
    """A file of this folder."""
    return (_HERE / name).read_text(encoding="utf-8")


def filled(template: str, **values: str) -> str:
    """An HTML template with its placeholders filled; the values must be markup already."""
    text = Template(template).substitute(values)
    return text.encode("utf-8", "replace").decode("utf-8")  # a name may hold half of a surrogate pair


def policy(style: str, script: str) -> str:
    """The page's content security policy: run this script, use this style, and nothing else."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
