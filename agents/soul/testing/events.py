"""Turn a completion into server-sent events, as OpenAI answers a request with `"stream": true`.

The events are cut from the finished completion, so that streamed and plain answers have the same text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from soul.testing.replies import Answer, ChatRequest

PIECES = 4  # number of deltas for a text, enough that a client must join them


def as_events(answer: Answer, request: ChatRequest) -> Answer:
    """The completion as a stream. Other answers (an error, a web page) stay unchanged, as at real endpoints."""
    completion = _completion_in(answer)
    if completion is None:
        return answer
    with_usage = bool((request.body.get("stream_options") or {}).get("include_usage"))
    events = [json.dumps(chunk) for chunk in _chunks(completion, with_usage)]
    body = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()
    return replace(answer, body=body, headers={**answer.headers, "content-type": "text/event-stream; charset=utf-8"})


def _completion_in(answer: Answer) -> dict[str, Any] | None:
    try:
        body = json.loads(answer.body)
    except ValueError:
        return None
    return body if isinstance(body, dict) and body.get("object") == "chat.completion" else None


def _chunks(completion: Mapping[str, Any], with_usage: bool) -> Iterator[dict[str, Any]]:
    common = {**completion, "object": "chat.completion.chunk"}
    usage = common.pop("usage", None)
    if with_usage:
        common["usage"] = None  # every chunk then has this field, and only the last one has a value
    for choice in completion["choices"]:
        for delta, finish in _deltas(choice):
            part = {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": finish}
            yield {**common, "choices": [part]}
    if with_usage:
        yield {**common, "choices": [], "usage": usage}


def _deltas(choice: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The deltas of one choice: the role, then text or refusal in pieces, then the finish reason."""
    message = choice["message"]
    yield {**message, "content": None if message.get("content") is None else "", "refusal": None}, None
    for part in ("content", "refusal"):
        text = message.get(part) or ""
        size = math.ceil(len(text) / PIECES) or 1
        for start in range(0, len(text), size):
            yield {part: text[start : start + size]}, None
    yield {}, choice["finish_reason"]
