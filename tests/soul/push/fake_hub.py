"""A hub on 127.0.0.1 that takes what `upload_folder` sends: repository, list of files, one commit with contents."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeHub:
    """Runs inside a `with` block.

    Args:
        token: the only one that it takes.

    Attributes:
        repos: name -> private.
        files: repository -> path -> content.
    """

    def __init__(self, token: str) -> None:
        self.token, self.repos, self.files = token, dict[str, bool](), dict[str, dict[str, bytes]]()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Authorization") != f"Bearer {hub.token}":
                    self._reply(401, {"error": "Invalid username or password."})
                    return
                self._reply(200, hub.answer(self.path, body))

            def do_GET(self) -> None:
                self._reply(404, {"error": f"not there: {self.path}"})

            def _reply(self, status: int, value: Any) -> None:
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: bytes) -> Any:
        """What the hub says to a POST of a user with the token."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.repos.setdefault(name, bool(asked.get("private") or asked.get("visibility") == "private"))
            return {"url": f"{self.url}/{name}", "name": name, "id": name}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        repo, _, verb = path.removeprefix("/api/models/").removesuffix("/main").rpartition("/")
        if verb == "preupload":  # "regular": the content comes with the commit, not through a store of large files
            files = [file["path"] for file in json.loads(body)["files"]]
            return {"files": [{"path": each, "uploadMode": "regular", "shouldIgnore": False} for each in files]}
        if verb == "commit":
            lines = [json.loads(line) for line in body.splitlines() if line]
            files = self.files.setdefault(repo, {})
            for line in lines:
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return {"commitUrl": f"{self.url}/{repo}/commit/1a2b", "commitOid": "1a2b", "success": True}
        raise AssertionError(f"the fake hub does not know {path}")
