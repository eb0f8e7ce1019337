"""A viewer's server in this process, and requests to it."""

import http.client
import json
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

from soul.pages.api import Api
from soul.pages.catalogue import Catalogue
from soul.pages.page import ServedPage
from soul.pages.server import ViewServer

PAGE = ServedPage("<!doctype html><title>page</title>", "default-src 'none'; frame-ancestors 'none'")


@contextmanager
def served(root, page=PAGE, **extensions):
    """The server of a folder with this page and these extensions of its API; it ends with the block."""
    server = ViewServer(Api(Catalogue(root), extensions), page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Client(server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Client:
    def __init__(self, server):
        self.server, self.prefix = server, f"/{server.token}"

    def answer(self, path, method="GET", body=None, **headers):
        """Status, headers and body of an answer; `path` begins after the token."""
        return self.raw(self.prefix + path, method, body, **headers)

    def raw(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection(urlsplit(self.server.address).netloc, timeout=20)
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, response.headers, answer

    def json(self, path):
        status, _, body = self.answer(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def ids(self):
        """Path of each run -> its id."""
        return {one["path"]: one["id"] for one in self.json("/api/folders")["folders"]}

    def run(self, path):
        """The API of a run: a function from the rest of the address to the answer's value."""
        number = self.ids()[path]
        return lambda rest: self.json(f"/api/run/{number}/{rest}")
