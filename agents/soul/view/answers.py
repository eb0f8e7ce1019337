"""Headers and bodies of the viewer's answers: JSON (gzip where accepted), pages, and lines that come bit by bit."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from shutil import copyfileobj
from typing import Any

from soul.evaluate.report.packing import to_json

GZIP_FROM = 1000  # bytes
NO_CONTENT = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
# A report's own policy, in its head, allows only its own script; this one keeps any page from connecting anywhere.
STORED_PAGE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)


class Answers(BaseHTTPRequestHandler):
    """Writes answers. HEAD gets the headers alone."""

    protocol_version = "HTTP/1.1"

    def send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Answer with a value as JSON."""
        body = to_json(value).encode("utf-8", "backslashreplace")
        encoding: dict[str, str] = {"Vary": "Accept-Encoding"}
        if len(body) >= GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, encoding = gzip.compress(body, compresslevel=1), {**encoding, "Content-Encoding": "gzip"}
        self._head(status, "application/json", NO_CONTENT, {**encoding, "Content-Length": str(len(body))})
        self._body(body)

    def send_problem(self, status: HTTPStatus, text: str) -> None:
        """Answer with an error: {"error": text}."""
        self.close_connection = True
        self.send_json({"error": text}, status)

    def send_page(self, html: str, policy: str) -> None:
        """Answer with the viewer's own page."""
        body = html.encode("utf-8")
        self._head(
            HTTPStatus.OK,
            "text/html; charset=utf-8",
            f"{policy}; frame-ancestors 'none'",
            {"Content-Length": str(len(body))},
        )
        self._body(body)

    def send_stored_page(self, page: Path) -> None:
        """Answer with a page of a run, as it is."""
        with page.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            self._head(HTTPStatus.OK, "text/html; charset=utf-8", STORED_PAGE, {"Content-Length": str(size)})
            if self.command != "HEAD":
                copyfileobj(file, self.wfile)

    def send_redirect(self, address: str) -> None:
        self._head(HTTPStatus.FOUND, "text/plain", NO_CONTENT, {"Location": address, "Content-Length": "0"})

    def send_lines(self, values: Iterable[Mapping[str, Any]]) -> None:
        """Answer with lines of JSON, each sent when it is known."""
        self._head(HTTPStatus.OK, "application/x-ndjson", NO_CONTENT, {"Transfer-Encoding": "chunked"})
        if self.command == "HEAD":
            return
        for value in values:
            line = json.dumps(value).encode("ascii") + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode("ascii") + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _head(self, status: HTTPStatus, kind: str, policy: str, more: Mapping[str, str]) -> None:
        self.send_response(status)
        safety = {
            "Content-Type": kind,
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in {**safety, **more}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _body(self, body: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(body)
