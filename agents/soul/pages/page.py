"""The page: one application for training runs, evaluations, comparisons and reviews, served or written as one file.

script/ has one class for each view and the components that they share; style.css has the look. The page reads its data
through `Source` (script/source.js): over HTTP from `soul view`, or from compressed script elements of the file. Both
answer the same addresses (`soul.pages.api`), so that no view knows which of them it reads.

Texts of a policy are hostile: they may contain `</script>` or `<!--`. Packed data is gzip in base64, whose alphabet has
neither. The content security policy allows this script and this style by their hashes and nothing else; a served page
may also fetch from its own server. Trusted Types ensure that texts are inserted only as text.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import pydantic_core

from soul.files.whole_file import write_whole

_HERE = Path(__file__).parent
# Files of script/, in the order in which they need each other: components first, then the views.
SCRIPTS = (
    "elements source store link table list chart curves diff scene turns session "
    "home learning feedback sessions group row judge costs results compare play annotate review app"
).split()
POLL_MS = 3000  # how often a served page asks for news
PART_CHARACTERS = 1_000_000
LARGEST_EXACT = 2**53  # the largest integer that JavaScript represents exactly
# Integers that may exceed LARGEST_EXACT, possibly inside a text. In JSON a number follows one of these signs; searching
# for the sign first takes a tenth of the time.
_LONG_NUMBER = re.compile(r"[:,\[]-?[0-9]{16}")
_POLICY = (
    "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)


class ServedPage(NamedTuple):
    """The page of `soul view`. Send `policy` as the header Content-Security-Policy with it."""

    html: str
    policy: str


def served_page(title: str = "soul view", poll_ms: int = POLL_MS, **known: Any) -> ServedPage:
    """The page without data. It fetches from `api/...`, relative to its own URL, which must end with a slash.

    Args:
        known: further values for the script, such as whether there is a playground.
    """
    html = "".join(_pieces(title, {"served": True, "poll_ms": poll_ms, **known}, data=()))
    return ServedPage(html, f"{_policy(connect=True)}; frame-ancestors 'none'")


def write_page(file: Path, title: str, data: Mapping[str, Any], texts: Iterable[tuple[str, str]], start: str) -> Path:
    """Write the page with its data as one file, and return the file; readers see the whole new page or the old one.

    Args:
        data: address of the API -> its answer, unpacked when a view asks for it.
        texts: addresses of single texts, such as sessions, with their JSON without line ends. They are packed in parts,
            so that a browser never has all of them in memory.
        start: the view that opens first, as the address behind "#".
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, _pieces(title, {"served": False, "start": start}, _data(data, texts)))
    return file


def _data(data: Mapping[str, Any], texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The script elements with the data: the parts of the texts, an index of them, and the answers."""
    addresses: list[str] = []
    starts: list[int] = []
    for part in _parts(texts):
        yield _element(f"part-{len(starts)}", "\n".join(line for _, line in part))
        starts.append(len(addresses))
        addresses += [address for address, _ in part]
    yield _element("texts", to_json({"addresses": addresses, "starts": starts}))
    for address, answer in data.items():
        yield _element(f"data:{address}", to_json(answer))


def _parts(texts: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Texts in runs of at most PART_CHARACTERS."""
    part: list[tuple[str, str]] = []
    size = 0
    for text in texts:
        size += len(text[1])
        if part and size > PART_CHARACTERS:
            yield part
            part, size = [], len(text[1])
        part.append(text)
    if part:
        yield part


def _element(name: str, text: str) -> str:
    """A script element with the text as gzip in base64; equal texts give equal results."""
    # Lone surrogates occur only in JSON strings here. They become escapes, which JSON reads back unchanged.
    stored = gzip.compress(text.encode("utf-8", "backslashreplace"), compresslevel=6, mtime=0)
    body = base64.b64encode(stored).decode("ascii")
    return f'<script type="application/gzip" id="{escape(name)}">{body}</script>\n'


def _pieces(title: str, known: Mapping[str, Any], data: Iterable[str]) -> Iterator[str]:
    before, after = _read("page.html").split("$data\n")
    policy = escape(_policy(connect=known["served"]))
    yield _filled(before, title=escape(title), style=_read("style.css"), policy=policy)
    yield from data
    yield _filled(after, script=_script(), known=to_json(known).replace("<", "\\u003c"))


@cache
def _policy(connect: bool) -> str:
    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"

    allowed = f"script-src {digest(_script())}; style-src {digest(_read('style.css'))}"
    return f"{_POLICY}; {allowed}" + ("; connect-src 'self'" if connect else "")


@cache
def _script() -> str:
    return "\n".join(_read(f"script/{name}.js") for name in SCRIPTS)


@cache
def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _filled(template: str, **values: str) -> str:
    text = Template(template).substitute(values)
    return text.encode("utf-8", "replace").decode("utf-8")  # a name may contain a lone surrogate


def to_json(value: Any) -> str:
    """JSON that a browser can read; see `plain`."""
    try:  # four times as fast as the standard library, and nearly always enough
        text = pydantic_core.to_json(value, inf_nan_mode="strings").decode()
    except pydantic_core.PydanticSerializationError:  # half a surrogate pair, or an integer of any length
        text = ""
    if not text or _LONG_NUMBER.search(text):
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    return text


def plain(value: Any) -> Any:
    """The value with every number that JSON or JavaScript cannot represent replaced by its text."""
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
