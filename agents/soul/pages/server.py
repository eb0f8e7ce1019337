"""The server of `soul view`: on 127.0.0.1 only, for whoever has the address with its random token.

A page of another site that resolves its name to 127.0.0.1 (DNS rebinding) is refused by its Host header. `/TOKEN/` is
the page, `/TOKEN/api/...` gives the answers of `soul.pages.api`; an error is {"error": text}. POST is answered only
where an extension changes something (`soul view --play`), and only if it comes from the page itself: the request's
Origin is this server, its type is JSON.
"""

from __future__ import annotations

import gzip
import json
import logging
import secrets
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from soul.errors import BadSettings, SoulError, one_line
from soul.pages.api import Api, NotThere
from soul.pages.page import ServedPage, to_json
from soul.pages.sessions import NoSession

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"
GZIP_FROM = 1000  # bytes
MOST_BYTES = 1_000_000  # of a request's body
SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
POLICY = "Content-Security-Policy"
NO_CONTENT = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


class ViewServer(ThreadingHTTPServer):
    """Serves a page and its API at `address`, `serve_forever` until `shutdown`. Port 0 is any free one.

    Raises:
        BadSettings: the port is taken.
    """

    daemon_threads = True
    block_on_close = False  # a search that runs when the viewer ends is not waited for

    def __init__(self, api: Api, page: ServedPage, port: int = 0) -> None:
        self.api, self.page = api, page
        self.token = secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise BadSettings(f"--port {port}: {error.strerror}. Pass another one, or leave it out.") from None
        number = self.server_address[1]
        self.hosts = {f"{HOST}:{number}", f"localhost:{number}"}
        self.address = f"http://{HOST}:{number}/{self.token}/"

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Log what a request raised. A reader that went away, as when a search is stopped, is not an error."""
        if not isinstance(sys.exception(), ConnectionError):
            logger.exception("a request could not be answered")


class Handler(BaseHTTPRequestHandler):
    """Answers one request. HEAD gets the headers alone."""

    protocol_version = "HTTP/1.1"
    server: ViewServer

    def do_GET(self) -> None:
        """Answer a request, after its Host and its token are checked."""
        if (asked := self._asked()) is None:
            return
        parts, query = asked
        match parts:
            case []:
                self._send(HTTPStatus.FOUND, "text/plain", b"", Location=f"/{self.server.token}/")
            case [""]:
                html, policy = self.server.page
                self._send(HTTPStatus.OK, "text/html; charset=utf-8", html.encode("utf-8"), **{POLICY: policy})
            case ["api", *rest]:
                self._answer(lambda: self.server.api.get(rest, query))
            case _:
                self._problem(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Carry out a request of the page; refuse those of any other."""
        if (asked := self._asked()) is None:
            return
        if not self.server.api.writes:
            return self._refuse()
        length = self.headers.get("Content-Length", "")
        own = self.headers.get("Origin") in {f"http://{host}" for host in self.server.hosts}
        if not own or self.headers.get_content_type() != "application/json":
            self._problem(HTTPStatus.FORBIDDEN, "Only the page of this server may change something.")
        elif not length.isdecimal() or int(length) > MOST_BYTES:
            self._problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {MOST_BYTES:,} bytes.")
        else:
            stored, parts = self.rfile.read(int(length)), asked[0]
            self._answer(lambda: self.server.api.post(parts[1:] if parts[:1] == ["api"] else [], _object(stored)))

    def _refuse(self) -> None:
        self._problem(HTTPStatus.METHOD_NOT_ALLOWED, "This server is read-only: GET and HEAD.")

    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_CONNECT = do_TRACE = _refuse

    def _asked(self) -> tuple[list[str], dict[str, str]] | None:
        """The parts of the address after the token, and its query; None after a refusal."""
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._problem(HTTPStatus.FORBIDDEN, "This server answers only to the address that soul view printed.")
            return None
        split = urlsplit(self.path)
        token, *parts = [unquote(part) for part in split.path.split("/")[1:]]
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._problem(HTTPStatus.NOT_FOUND, "There is nothing here. Open the address that soul view printed.")
            return None
        return parts, {name: values[-1] for name, values in parse_qs(split.query, keep_blank_values=True).items()}

    def _answer(self, ask: Callable[[], Any]) -> None:
        try:
            self._json(ask())
        except (NotThere, FileNotFoundError):
            self._problem(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
        except NoSession as error:
            self._problem(HTTPStatus.GONE, f"{error}.")
        except SoulError as error:
            self._problem(HTTPStatus.UNPROCESSABLE_ENTITY, one_line(error))

    def _json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = to_json(value).encode("utf-8", "backslashreplace")
        encoding = {"Vary": "Accept-Encoding"}
        if len(body) >= GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, encoding = gzip.compress(body, compresslevel=1), {**encoding, "Content-Encoding": "gzip"}
        self._send(status, "application/json", body, **encoding)

    def _problem(self, status: HTTPStatus, text: str) -> None:
        self.close_connection = True
        self._json({"error": text}, status)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, **more: str) -> None:
        self.send_response(status)
        about = {"Content-Type": kind, "Content-Length": str(len(body)), POLICY: NO_CONTENT}
        closing = {"Connection": "close"} if self.close_connection else {}
        for name, value in {**about, **SAFETY, **more, **closing}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are logged with SOUL_LOG=debug, without the token."""
        logger.debug("%s", (format % args).replace(self.server.token, "TOKEN"))


def _object(stored: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(stored))
    except (ValueError, TypeError) as error:
        raise SoulError(f"the request is no JSON object: {error}") from None
