"""The viewer's API for invented sessions, so that the page can be tested by itself."""

import json
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

import statistics

from soul.view.page import served_page


def columns_of(lines, start=1):
    """The index's columns of these lines."""
    plain = ("step", "task", "file", "number", "row", "prompt", "session")
    columns = {key: [line[key] for line in lines] for key in plain}
    refined = [line["refined"] or {} for line in lines]
    return columns | {
        "id": list(range(start, start + len(lines))),
        "split": {"values": ["step"], "codes": [0] * len(lines)},
        "draft": [line["draft"]["reward"] for line in lines],
        "refined": [one.get("reward") for one in refined],
        "advantage_draft": [line["advantages"].get("draft") for line in lines],
        "advantage_refined": [line["advantages"].get("refined_base") for line in lines],
        "redactions": [line.get("redactions", 0) for line in lines],
        "cause": [(line["draft"].get("failure") or {}).get("cause") for line in lines],
        "disagree": [int(bool(one.get("jury"))) for one in refined],
        "valid": [1] * len(lines),
        "dropped": [0] * len(lines),
        "seconds": [8.0] * len(lines),
        "cost": [0.004] * len(lines),
        "tokens": [160] * len(lines),
        "live": [0] * len(lines),
    }


def overview_of(lines, revision):
    """The overview with curves by task; the bands are invented."""
    steps = sorted({line["step"] for line in lines})
    curves = {}
    for task in ["all", *sorted({line["task"] for line in lines})]:
        by_step = defaultdict(list)
        for line in lines:
            if task in ("all", line["task"]) and line["refined"]:
                by_step[line["step"]].append((line["draft"]["reward"], line["refined"]["reward"]))
        curve = {"steps": [step for step in steps if by_step[step]]}
        pairs = [by_step[step] for step in curve["steps"]]
        kinds = {"draft": lambda a, b: a, "refined": lambda a, b: b, "gap": lambda a, b: b - a}
        for name, value in kinds.items():
            means = [statistics.fmean(value(*pair) for pair in of_step) for of_step in pairs]
            curve[name] = {
                "mean": means,
                "low": [m - 0.1 for m in means],
                "high": [m + 0.1 for m in means],
                "n": [len(p) for p in pairs],
            }
        curve["better"] = [statistics.fmean(b > a for a, b in of_step) for of_step in pairs]
        curve["same"] = [statistics.fmean(b == a for a, b in of_step) for of_step in pairs]
        curve["worse"] = [statistics.fmean(b < a for a, b in of_step) for of_step in pairs]
        curves[task] = curve
    n = len(steps)
    series = {
        "actor/entropy": [1.0 - 0.02 * k for k in range(n)],
        "actor/grad_norm": [0.5] * n,
        "ditto/share_invalid": [0.0] * n,
        "timing_s/gen": [30.0] * n,
        "timing_s/update_actor": [12.0] * n,
        "timing_s/step": [45.0] * n,
    }
    calls = [
        {
            "step": step,
            "role": "judge",
            "task": task,
            "calls": 48,
            "failed": 1,
            "prompt_tokens": 9000,
            "completion_tokens": 900,
            "cost_usd": 0.02,
            "seconds": 90.0,
        }
        for step in steps
        for task in curves
        if task != "all"
    ]
    events = [
        {"step": steps[-1], "kind": "checkpoint", "text": "saved"},
        {"step": steps[0], "kind": "resume", "text": "resumed"},
    ]
    run = {"objective": "ditto", "started": 1_700_000_000, "resumed": []}
    return {
        "revision": revision,
        "run": run,
        "metrics": {"steps": steps, "series": series},
        "curves": curves,
        "events": events,
        "calls": calls,
    }


class FakeApi:
    """Serves runs (name -> lines) that a test may let grow: append lines, then raise `revision`."""

    def __init__(self, runs):
        self.runs, self.revision = runs, 1

    def answer(self, path, query):
        if path == "api/folders":
            folders = [
                {
                    "id": name,
                    "path": name,
                    "kind": "training",
                    "name": name,
                    "modified": 1,
                    "steps": 2,
                    "tasks": ["hitom"],
                    "objective": "ditto",
                    "running": True,
                }
                for name in self.runs
            ]
            return {
                "root": "outputs",
                "folders": [
                    *folders,
                    {
                        "id": "eval",
                        "path": "eval",
                        "kind": "evaluation",
                        "name": "my evaluation",
                        "modified": 2,
                        "steps": 0,
                        "tasks": [],
                        "report": True,
                    },
                ],
            }
        _, _, name, what, *rest = path.split("/")
        lines = self.runs[name]
        if what == "overview":
            return {"revision": self.revision, "unchanged": True} if query.get("from") == [str(self.revision)] else overview_of(lines, self.revision)
        if what == "index":
            after = int(query["after"][0])
            return {"revision": self.revision, "reset": False, "gone": [], "columns": columns_of(lines[after:], after + 1)}
        if what == "session":
            return lines[int(rest[0]) - 1]
        hits = [
            {"hit": k}
            for k, line in enumerate(lines, 1)
            if query["text"][0].lower() in json.dumps(line, ensure_ascii=False).lower()
        ]
        return [*hits, {"progress": 1.0}, {"end": True}]


@contextmanager
def serving(api):
    """The URL of a server for the page and this API."""
    page = served_page(poll_ms=200)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            address = urlsplit(self.path)
            path = unquote(address.path).removeprefix("/token/")
            if path == "":
                body, kind = page.html.encode(), "text/html; charset=utf-8"
            else:
                value = api.answer(path, parse_qs(address.query))
                body = (
                    "\n".join(map(json.dumps, value)) + "\n" if isinstance(value, list) else json.dumps(value)
                ).encode()
                kind = "application/json"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Security-Policy", page.policy)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
