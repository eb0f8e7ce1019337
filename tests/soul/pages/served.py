"""A viewer's server in this process, and requests to it."""

import http.client
import json
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

from soul.pages.server import ViewServer

PAGE = ("<!doctype html><title>page</title>", "default-src 'none'")


@contextmanager
def served(root, page=PAGE):
    """The server of a folder with this page (HTML, policy); it ends with the block."""
    server = ViewServer(root, page)
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

    def answer(self, path, method="GET", **headers):
        """Status, headers and body of an answer; `path` begins after the token."""
        return self.raw(self.prefix + path, method, **headers)

    def raw(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection(urlsplit(self.server.address).netloc, timeout=20)
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers, body

    def json(self, path):
        status, _, body = self.answer(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def run(self, name):
        """The API of the run with this name: a function from the rest of the address to the answer's value."""
        (folder,) = [one for one in self.json("/api/folders")["folders"] if one["name"] == name]
        return lambda rest: self.json(f"/api/run/{folder['id']}/{rest}")
