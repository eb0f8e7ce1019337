"""A hub on 127.0.0.1 that takes what `create_commit` sends: repository, large files one by one, one commit.

Parquet files are large files, as on the real hub: their content is put into a store before the commit names it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import threading
from contextlib import redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from unittest.mock import patch

from soul.push.__main__ import main

TOKEN = "hf_only_for_this_test"


class FakeHub:
    """Runs inside a `with` block.

    Args:
        token: the only one that it takes.

    Attributes:
        repos: name -> private.
        files: repository -> path -> content; a dataset's name begins with "datasets/".
        stored: the store of large files, SHA-256 -> content.
        put: large files that were sent and stored, with repetitions.
        room: large files that the store has room for; None: any number.
    """

    def __init__(self, token: str) -> None:
        self.token, self.repos, self.files = token, dict[str, bool](), dict[str, dict[str, bytes]]()
        self.stored = dict[str, bytes]()
        self.room: int | None = None
        self.put = 0
        self.lock = threading.Lock()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Authorization") != f"Bearer {hub.token}":
                    self._reply(401, {"error": "Invalid username or password."})
                    return
                self._reply(200, hub.answer(self.path, body))

            def do_GET(self) -> None:
                name = self.path.removeprefix("/api/").removeprefix("models/")
                if name in hub.repos:
                    self._reply(200, {"id": name.removeprefix("datasets/"), "private": hub.repos[name]})
                else:
                    self._reply(404, {"error": f"not there: {self.path}"})

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with hub.lock:  # files come from several threads
                    taken = hub.room is None or len(hub.stored) < hub.room
                    if taken:
                        hub.put += 1
                        hub.stored[hashlib.sha256(body).hexdigest()] = body
                self._reply(200 if taken else 403, {} if taken else {"error": "The store is full."})

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
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: bytes) -> Any:
        """What the hub says to a POST of a user with the token."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            kind = "datasets" if asked.get("type") == "dataset" else None
            name = "/".join(filter(None, (kind, asked.get("organization"), asked["name"])))
            self.repos.setdefault(name, bool(asked.get("private") or asked.get("visibility") == "private"))
            return {"url": f"{self.url}/{name}", "name": name, "id": name}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if path.endswith(".git/info/lfs/objects/batch"):
            return {"objects": [self._transfer(each) for each in json.loads(body)["objects"]]}
        repo, _, verb = path.removeprefix("/api/").removeprefix("models/").removesuffix("/main").rpartition("/")
        if verb == "preupload":  # "regular": the content comes with the commit, not through the store
            files = [file["path"] for file in json.loads(body)["files"]]
            mode = {each: "lfs" if each.endswith(".parquet") else "regular" for each in files}
            return {"files": [{"path": each, "uploadMode": mode[each], "shouldIgnore": False} for each in files]}
        if verb == "commit":
            lines = [json.loads(line) for line in body.splitlines() if line]
            files = self.files.setdefault(repo, {})
            for line in lines:
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "lfsFile":
                    files[line["value"]["path"]] = self.stored[line["value"]["oid"]]
            return {"commitUrl": f"{self.url}/{repo}/commit/1a2b", "commitOid": "1a2b", "success": True}
        raise AssertionError(f"the fake hub does not know {path}")

    def _transfer(self, item: Any) -> Any:
        """Where to put the content of a large file; no address if the store has it."""
        upload = {"upload": {"href": f"{self.url}/store/{item['oid']}"}}
        return {**item, **({} if item["oid"] in self.stored else {"actions": upload})}


class Done(NamedTuple):
    """What a command left: its exit code and its output."""

    returncode: int
    stdout: str
    stderr: str


def push(hub: FakeHub, *words: str, token: str = TOKEN) -> Done:
    """Run the command against the hub. huggingface_hub has read its variables when it was imported."""
    from huggingface_hub import constants, utils

    said, told = io.StringIO(), io.StringIO()
    changed = {"ENDPOINT": hub.url, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
    utils.disable_progress_bars()
    with (
        patch.multiple(constants, **changed),
        patch.dict(os.environ, {"HF_TOKEN": token}),
        redirect_stdout(said),
        redirect_stderr(told),
    ):
        code = main(words)
    return Done(code, said.getvalue(), told.getvalue())
