"""OFFLINE STAND-IN for a judge: an OpenAI-compatible server that writes critiques by rule, with no model behind it.

The demo must run without a key and without a network, so this process replaces an API model. It answers two requests:
the one that one-turn tasks send for a critique (`soul.one_turn.OneTurnTask.feedback`), and the connection test
(`soul.judge.Judge.check`). It refuses all others with a 400 and the reason; it never invents an answer. The critiques
come from `recipe.demo.coach`. It gives no scores: the task scores HiToM by rule.

    python -m recipe.demo.judge_server --port 0 --ready-file judge.url    # the file gets the base URL once the server
    runs
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from recipe.demo import coach
from soul.cli.arguments import output_file, port
from soul.cli.error_border import Parser, reports_errors
from soul.files.whole_file import write_whole
from soul.judge.call.untrusted import data_of

MODEL = "offline-stand-in-rules"


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object that answers a chat request.

    Raises:
        ValueError: the stand-in has no rule for this request.
    """
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    wanted = set(schema.get("properties", {}))
    if wanted == {"ready"}:
        return {"ready": True}
    if wanted != {"critique"}:
        raise ValueError(f"the offline stand-in only writes critiques; asked for the fields {sorted(wanted)}")
    data = data_of(next((m["content"] for m in body.get("messages", []) if m["role"] == "user"), ""))
    missing = {"task", "correct_answer", "attempt"} - set(data)
    if missing:
        raise ValueError(f"the data lacks {sorted(missing)}")
    return {"critique": coach.critique(str(data["task"]), str(data["correct_answer"]), str(data["attempt"]))}


def completion(body: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion in OpenAI's format. The token counts are counts of words."""
    text = json.dumps(answer(body))
    sent, received = sum(len(m["content"].split()) for m in body.get("messages", [])), len(text.split())
    return {
        "id": f"standin-{time.time_ns()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received},
    }


class Handler(BaseHTTPRequestHandler):
    """GET /v1/models and POST /v1/chat/completions."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path.rstrip("/") == "/v1/models":
            self._send(HTTPStatus.OK, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.rstrip("/") != "/v1/chat/completions":
            self._refuse(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
            return
        try:
            self._send(HTTPStatus.OK, completion(json.loads(raw)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"{type(error).__name__}: {error}")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": "offline_stand_in", "code": None}})

    def _send(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        payload = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: hundreds of requests per step would bury the demo's own output."""


class Server(ThreadingHTTPServer):
    """One thread per connection; the queue is long enough for all sessions of a step at once."""

    daemon_threads = True
    request_queue_size = 512

    @property
    def base_url(self) -> str:
        """The value for OPENAI_BASE_URL or judge.base_url."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


def serve(port: int = 0) -> Server:
    """A server bound to 127.0.0.1 that does not run yet; port 0 lets the system choose."""
    return Server(("127.0.0.1", port), Handler)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run until interrupted."""
    parser = Parser(prog="python -m recipe.demo.judge_server", description=__doc__)
    parser.add_argument("--port", type=port, default=0, help="0: let the system choose (default)")
    parser.add_argument("--ready-file", type=output_file, help="gets the base URL, once the server takes calls")
    args = parser.parse_args(arguments)
    with serve(args.port) as server:
        print(f"OFFLINE STAND-IN judge ({MODEL}): critiques by rule, no language model. {server.base_url}", flush=True)
        if args.ready_file is not None:
            write_whole(args.ready_file, f"{server.base_url}\n")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("stand-in judge stopped", flush=True)


if __name__ == "__main__":
    sys.exit(main())
