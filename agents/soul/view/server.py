"""The viewer's server: on 127.0.0.1 only, read-only, for whoever has the address with its random token.

Other programs of this machine do not know the token. A page of another site that resolves its name to 127.0.0.1 (DNS
rebinding) is refused by its Host header. Nothing is written but indexes; addresses are looked up in a table.

    /TOKEN/                                  the page
    /TOKEN/api/folders                       what there is to look at (discovery.py)
    /TOKEN/api/run/ID/overview?from=REV      numbers of a training run; "unchanged" if REV is still its revision
    /TOKEN/api/run/ID/index?after=N&revision=R   sessions after row N; all, if some have gone since R (index.py)
    /TOKEN/api/run/ID/against/ID             the prompts of two runs (against.py)
    /TOKEN/api/run/ID/session/N              one session's record
    /TOKEN/api/run/ID/search?text=T&after=N  lines {"hit": N}, {"progress": share}, {"end": true} (sessions.py)
    /TOKEN/report/ID                         leads to the page of an evaluation or comparison, below /TOKEN/files/

An error is {"error": text}.
"""

from __future__ import annotations

import gzip
import json
import logging
import secrets
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from soul.errors import BadSettings
from soul.evaluate.report.page_parts import to_json
from soul.view.discovery import Catalogue
from soul.view.sessions import NoSession
from soul.view.training import RunView

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
GZIP_FROM = 1000  # bytes
HTML = "text/html; charset=utf-8"
SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NO_CONTENT = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
# A report's own policy, in its head, allows only its own script; this one keeps any page from connecting anywhere.
STORED_PAGE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)


class ViewServer(ThreadingHTTPServer):
    """Serves a folder; `serve_forever` until `shutdown`.

    Args:
        root: the folder with runs and evaluations.
        page: HTML and content security policy of the viewer's page.
        port: 0 for any free one.

    Attributes:
        address: what to open in a browser.

    Raises:
        BadSettings: the port is taken.
    """

    daemon_threads = True
    block_on_close = False  # a search that runs when the viewer ends is not waited for

    def __init__(self, root: Path, page: tuple[str, str], port: int = 0) -> None:
        self.catalogue, self.page = Catalogue(root), page
        self.token = secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise BadSettings(f"--port {port}: {error.strerror}. Name another one, or leave it out.") from None
        number = self.server_address[1]
        self.hosts = {f"{HOST}:{number}", f"localhost:{number}"}
        self.address = f"http://{HOST}:{number}/{self.token}/"

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Log what a request raised. A reader that went away, as when a search is stopped, is not an error."""
        if not isinstance(sys.exception(), ConnectionError):
            logger.exception("a request could not be answered")


class _BadRequest(Exception):
    """A parameter of an address is missing or no number."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request. HEAD gets the headers alone."""

    protocol_version = "HTTP/1.1"
    server: ViewServer

    def do_GET(self) -> None:
        """Answer a request, after its Host and its token are checked."""
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._problem(HTTPStatus.FORBIDDEN, "This server answers only to the address that soul view printed.")
            return
        split = urlsplit(self.path)
        token, *parts = [unquote(part) for part in split.path.split("/")[1:]]
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._problem(HTTPStatus.NOT_FOUND, "There is nothing here. Open the address that soul view printed.")
            return
        query = {name: values[-1] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        try:
            self._answer(parts, query)
        except _BadRequest as error:
            self._problem(HTTPStatus.BAD_REQUEST, str(error))
        except NoSession as error:
            self._problem(HTTPStatus.GONE, f"{error}.")
        except FileNotFoundError:
            self._problem(HTTPStatus.NOT_FOUND, "This file was there a moment ago, and is gone.")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._problem(HTTPStatus.METHOD_NOT_ALLOWED, "This server is read-only: GET and HEAD.")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_CONNECT = do_TRACE = _refuse

    def _answer(self, parts: Sequence[str], query: dict[str, str]) -> None:
        catalogue, root = self.server.catalogue, f"/{self.server.token}/"
        match parts:
            case []:
                self._send(HTTPStatus.FOUND, "text/plain", b"", {"Location": root})
            case [""]:
                html, policy = self.server.page
                self._send(HTTPStatus.OK, HTML, html.encode("utf-8"), policy=f"{policy}; frame-ancestors 'none'")
            case ["api", "folders"]:
                self._json(catalogue.folders())
            case ["api", "run", number, *rest] if training := catalogue.training(number):
                self._answer_run(training, rest, query)
            case ["report", number] if path := catalogue.page_path(number):
                self._send(HTTPStatus.FOUND, "text/plain", b"", {"Location": f"{root}files/{quote(path)}"})
            case ["files", *rest] if page := catalogue.page("/".join(rest)):
                self._send(HTTPStatus.OK, HTML, page.read_bytes(), policy=STORED_PAGE)
            case _:
                self._problem(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def _answer_run(self, training: RunView, parts: Sequence[str], query: dict[str, str]) -> None:
        match parts:
            case ["overview"]:
                self._json(training.overview(_number(query, "from")))
            case ["index"]:
                self._json(training.columns(_number(query, "after") or 0, _number(query, "revision")))
            case ["session", number]:
                self._json(training.session(_number({"session": number}, "session") or 0))
            case ["against", other] if second := self.server.catalogue.training(other):
                self._json(training.against(second))
            case ["search"] if query.get("text"):
                self._lines(training.search(query["text"], _number(query, "after") or 0))
            case ["search"]:
                raise _BadRequest("text: name what to search for")
            case _:
                self._problem(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def _json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = to_json(value).encode("utf-8", "backslashreplace")
        encoding = {"Vary": "Accept-Encoding"}
        if len(body) >= GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, encoding = gzip.compress(body, compresslevel=1), {**encoding, "Content-Encoding": "gzip"}
        self._send(status, "application/json", body, encoding)

    def _problem(self, status: HTTPStatus, text: str) -> None:
        self.close_connection = True
        self._json({"error": text}, status)

    def _lines(self, values: Iterable[Mapping[str, Any]]) -> None:
        """Answer with lines of JSON, each sent when it is known."""
        self._head(HTTPStatus.OK, "application/x-ndjson", NO_CONTENT, {"Transfer-Encoding": "chunked"})
        if self.command == "HEAD":
            return
        for value in values:
            line = json.dumps(value).encode("ascii") + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode("ascii") + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _send(
        self,
        status: HTTPStatus,
        kind: str,
        body: bytes,
        more: Mapping[str, str] = MappingProxyType({}),
        policy: str = NO_CONTENT,
    ) -> None:
        self._head(status, kind, policy, {**more, "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, policy: str, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Security-Policy": policy, **SAFETY, **more}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are logged with SOUL_LOG=debug, without the token."""
        logger.debug("%s", (format % args).replace(self.server.token, "TOKEN"))


def _number(query: dict[str, str], name: str) -> int | None:
    """A parameter that is a whole number, 0 or more; None without it."""
    text = query.get(name)
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise _BadRequest(f"{name}={text}: expected a whole number, 0 or more")
    return int(text)
