"""What `vllm` is in the tests of the server's life: the same command line, and processes that can be looked for.

It writes its command line and its process ids (its own and a child's) to $STAND_IN_FOLDER, loads for a moment
($STAND_IN_LOADS_S seconds), and answers as vLLM's routes do, after $STAND_IN_ANSWERS_S seconds. With $STAND_IN_FAILS it
ends while it loads, with $STAND_IN_BREAKS at the first question; with $STAND_IN_STUBBORN it ignores SIGTERM.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(os.environ["STAND_IN_FOLDER"])
CHILD = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
NAME = f"{os.getpid()}.json"
WORDS = {
    "arguments": sys.argv[1:],
    "pids": [os.getpid(), CHILD.pid],
    "keys": [k for k in os.environ if "OPENAI" in k or "KEY" in k],
}
(FOLDER / f"{NAME}.partial").write_text(json.dumps(WORDS))
(FOLDER / f"{NAME}.partial").rename(FOLDER / NAME)


class Routes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/tokenize":
            return self.send({"count": sum(len(message["content"].split()) for message in body["messages"])})
        with (FOLDER / "asked.jsonl").open("a") as asked:
            asked.write(json.dumps(body) + "\n")
        if os.environ.get("STAND_IN_BREAKS"):
            print("ValueError: no kernel image", flush=True)
            end()
        time.sleep(float(os.environ.get("STAND_IN_ANSWERS_S", "0")))
        message = {"role": "assistant", "content": "<answer>A</answer>"}
        usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
        self.send({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    def send(self, answer: object) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def end(*_: object) -> None:  # as vLLM does, it takes its engine along
    CHILD.kill()
    os._exit(0)


if os.environ.get("STAND_IN_FAILS"):
    sys.exit("ValueError: no memory for the cache")
signal.signal(signal.SIGTERM, end)
if os.environ.get("STAND_IN_STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(float(os.environ.get("STAND_IN_LOADS_S", "0.3")))
port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Routes).serve_forever()
