"""A page that holds everything it needs: script, style and the policy that allows these two and nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from string import Template

_HERE = Path(__file__).parent


def script_of(names: Sequence[str]) -> str:
    """The script of a page: these files of script/, in this order."""
    return "\n".join(read(f"script/{name}.js") for name in names)


def read(name: str) -> str:
    """A file of this folder."""
    return (_HERE / name).read_text(encoding="utf-8")


def filled(template: str, **values: str) -> str:
    """A template of HTML with its places filled; what is put in must be markup already."""
    text = Template(template).substitute(values)
    return text.encode("utf-8", "replace").decode("utf-8")  # a name may hold half of a surrogate pair


def policy(style: str, script: str) -> str:
    """What the page may do (CSP): run this script, use this style, and nothing else."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
