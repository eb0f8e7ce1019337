"""What an endpoint can answer, and what the gateway makes of it.

`KINDS`: name -> (answer, outcomes that are right). An outcome is "ok" or the cause of the failure.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

from tests.soul.judge.call.hostile_server import (
    FORGED,
    VERDICT,
    Answer,
    Connection,
    Play,
    as_body,
    chunked,
    completion,
    http,
    raw,
)

OK, CONNECTION, INVALID, TIMEOUT = "ok", "connection", "invalid", "timeout"
OK_OR_BROKEN = (OK, CONNECTION)
_LIMITED = ("rate_limit", TIMEOUT)  # such a call waits for its deadline, which may come in the middle of a request
GOOD = as_body(completion())
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json"
Kind = tuple[Answer, tuple[str, ...]]


def _deep(opening: str, closing: str, depth: int = 100_000) -> bytes:
    return (opening * depth + closing * depth).encode()


def _field(name: str, value: str) -> bytes:
    """The good completion with one more field, whose value is any text: no JSON that Python would write."""
    return b'{"%s": %s, ' % (name.encode(), value.encode()) + GOOD[1:]


def _message(**changes: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": VERDICT}}
    choice["message"] |= changes.pop("message", {})
    return completion(choices=[{**choice, **changes}])


# aiohttp reads HTTP; these show that what it refuses is a typed failure.
PROTOCOL: dict[str, Kind] = {
    "nothing": (b"", (CONNECTION,)),
    "no status line": (GOOD, (CONNECTION,)),
    "status is a word": (raw("HTTP/1.1 abc OK"), (CONNECTION,)),
    "status zero": (raw("HTTP/1.1 000 OK"), (CONNECTION, "bad_request")),
    "invalid UTF-8 reason": (raw(f"HTTP/1.1 200 \udcff\udcfe\r\nContent-Length: {len(GOOD)}"), OK_OR_BROKEN),
    "reason of 100 kB": (raw(f"HTTP/1.1 200 {'x' * 100_000}"), OK_OR_BROKEN),
    "HTTP/1.0": (raw("HTTP/1.0 200 OK\r\nContent-Type: application/json"), (OK,)),
    "an SSH server": (b"SSH-2.0-OpenSSH_9.6\r\n", (CONNECTION,)),
    "a TLS alert": (b"\x15\x03\x01\x00\x02\x02\x46", (CONNECTION,)),
    "100,000 headers": (http(None, "200 OK", *(f"X-{n}: y" for n in range(100_000))), (CONNECTION,)),
    "a header of 1 MB": (http(None, "200 OK", f"X: {'y' * 1_000_000}"), (CONNECTION,)),
    "two different lengths": (http(None, "200 OK", "Content-Length: 3"), (CONNECTION,)),
    "length too large": (raw(f"{HEAD}\r\nContent-Length: {len(GOOD) + 9}"), (CONNECTION,)),
    "length too small": (raw(f"{HEAD}\r\nContent-Length: {len(GOOD) - 9}"), (INVALID, CONNECTION)),
    "no length": (raw(HEAD), (OK,)),
    "a hostile cookie": (http(None, "200 OK", 'Set-Cookie: a="\\777; Max-Age=9999999999; domain=\x01'), OK_OR_BROKEN),
    "a charset that is none": (http(kind="text/plain; charset=zlib"), (OK,)),
    "500 with a charset that is none": (http(b"\xff", "500 X", kind="text/plain; charset=zlib"), ("server_error",)),
    "chunks": (chunked(GOOD[:9], GOOD[9:]), (OK,)),
    "chunk size is a word": (chunked(end=b"zz\r\n" + GOOD), (CONNECTION,)),
    "no last chunk": (chunked(GOOD, end=b""), (CONNECTION,)),
}


def _packed(body: bytes, encoding: str, status: str = "200 OK") -> bytes:
    return http(body, status, f"Content-Encoding: {encoding}")


_BOMB = gzip.compress(bytes(64_000_000), 9)
ENCODINGS: dict[str, Kind] = {
    "gzip, which nobody asked for": (_packed(gzip.compress(GOOD), "gzip"), (OK,)),
    "identity": (_packed(GOOD, "identity"), (OK,)),
    "empty encoding": (_packed(GOOD, ""), (OK,)),
    "a bomb": (_packed(_BOMB, "gzip"), (INVALID,)),
    "a bomb in a 500": (_packed(_BOMB, "gzip", "500 Oops"), ("server_error",)),
}

STATUSES: dict[str, Kind] = {
    f"status {code}": (http({"error": {"message": "no"}}, f"{code} X"), (cause,))
    for cause, codes in {
        "auth": (401, 402, 403),
        "not_found": (404, 301, 307),
        "bad_request": (400, 405, 422, 499),
        "server_error": (408, 409, 425, 500, 503, 529, 999),
    }.items()
    for code in codes
}
STATUSES |= {
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + http(), (OK,)),
    "100 and nothing": (b"HTTP/1.1 100 Continue\r\n\r\n", (CONNECTION,)),
    "101": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", ("bad_request", CONNECTION)),
    "201": (http(None, "201 Created"), (OK,)),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", (INVALID,)),
    "304": (b"HTTP/1.1 304 Not Modified\r\n\r\n", ("not_found",)),
    "exhausted quota": (http({"error": {"code": "insufficient_quota"}}, "429 X"), ("auth",)),
    "no credit": (http({"error": {"code": 402, "message": "Insufficient credits"}}, "402 X"), ("auth",)),
    "a moderation": (http({"error": {"message": "Your input was flagged for violence"}}, "403 X"), ("refusal",)),
    "a flagged account": (http({"error": {"message": "Your account was flagged"}}, "403 X"), ("auth",)),
    "error code is a list": (http({"error": {"code": ["x"], "message": [1]}}, "429 X"), _LIMITED),
    "error is text": (http({"error": "no"}, "400 X"), ("bad_request",)),
    "error is a page": (http(b"<html><body>502</body></html>", "502 X", kind="text/html"), ("server_error",)),
    "error of invalid UTF-8": (http(b"\xff\xfe", "500 X"), ("server_error",)),
    "deep error": (http(_deep("[", "]"), "500 X"), ("server_error",)),
    "an error of 2 MB": (http(b" " * 2_000_000, "500 X"), ("server_error",)),
}
STATUSES["a redirect without an address"] = (http({}, "307 X", "Location: http://[::"), ("not_found", CONNECTION))
STATUSES["a Retry-After that is none"] = (http({"error": {}}, "429 X", f"Retry-After: {'9' * 5000}"), _LIMITED)

BODIES: dict[str, Kind] = {
    "good": (http(), (OK,)),
    "empty": (http(b""), (INVALID,)),
    "a page": (http(b"<!doctype html><html>Sign in</html>", kind="text/html"), (INVALID,)),
    "events": (http(b"data: " + GOOD + b"\n\ndata: [DONE]\n\n", kind="text/event-stream"), (INVALID,)),
    "garbage behind": (http(GOOD + b"garbage"), (INVALID,)),
    "truncated JSON": (http(GOOD[:-20]), (INVALID,)),
    "only text": (http(json.loads(VERDICT)), (INVALID,)),
    "invalid UTF-8": (http(GOOD.replace(b"Look", b"\xff\xfe")), (INVALID,)),
    "UTF-16": (http(GOOD.decode().encode("utf-16")), (INVALID,)),
    "a byte order mark": (http(b"\xef\xbb\xbf" + GOOD), (OK,)),
    "deep objects": (http(_deep('{"a":', "}")), (INVALID,)),
    "deep field": (http(_field("x", _deep("[", "]").decode())), (INVALID,)),
    "huge integer": (http(_field("created", "9" * 10_000)), (OK, INVALID)),
    "NaN": (http(_field("created", "NaN")), (OK, INVALID)),
    "a lone surrogate": (http(_field("x", '"\\ud83d"')), (OK, INVALID)),
    "2 MB of blanks": (http(b" " * 2_000_000 + GOOD), (INVALID,)),
    "an error": (http({"error": {"code": 502, "message": "upstream overloaded"}}), ("server_error",)),
    "an error and no choices": (http({"error": "upstream overloaded", "choices": []}), ("server_error",)),
    "the model broke off": (http(_message(finish_reason="error")), ("server_error",)),
    "300,000 fields": (http(b'{"x":[' + b"{}," * 300_000 + b"{}]," + GOOD[1:]), (OK,)),
}
for _name, _value in {"null": None, "a number": 7, "a list": []}.items():
    BODIES[f"the answer is {_name}"] = (http(as_body(_value)), (INVALID,))
    BODIES[f"choices is {_name}"] = (http(completion(choices=_value)), (INVALID,))
    BODIES[f"the choice is {_name}"] = (http(completion(choices=[_value])), (INVALID,))
    BODIES[f"message is {_name}"] = (
        http(completion(choices=[{"message": _value}])),
        (INVALID, "empty"),
    )
    BODIES[f"content is {_name}"] = (http(completion(_value)), (INVALID, "empty"))
    BODIES[f"refusal is {_name}"] = (http(_message(message={"refusal": _value})), (OK, INVALID, "refusal"))
    BODIES[f"finish_reason is {_name}"] = (http(_message(finish_reason=_value)), (OK, INVALID))
    BODIES[f"usage is {_name}"] = (http(completion(usage=_value)), (OK,))
    BODIES[f"the details are {_name}"] = (
        http(
            completion(usage={"prompt_tokens": 1, "prompt_tokens_details": _value, "completion_tokens_details": _value})
        ),
        (OK,),
    )
    BODIES[f"a part is {_name}"] = (http(completion([_value, {"type": "text", "text": VERDICT}])), (OK, INVALID))
    BODIES[f"a part's text is {_name}"] = (http(completion([{"type": "text", "text": _value}])), (INVALID, "empty"))

# --- answers that take their time, or end in the middle


def _broken_after(data: bytes, reset: bool) -> Play:
    async def play(connection: Connection) -> None:
        await connection.send(data)
        await asyncio.sleep(0.01)  # so that it arrives before the end does
        connection.reset() if reset else connection.writer.close()

    return play


def _silent_after(data: bytes) -> Play:
    async def play(connection: Connection) -> None:
        await connection.send(data)
        await connection.reader.read()  # until the client hangs up

    return play


def _trickled(head: bytes, drop: bytes, every_s: float = 0.02) -> Play:
    async def play(connection: Connection) -> None:
        await connection.send(head)
        while not connection.writer.is_closing():
            await connection.send(drop)
            await asyncio.sleep(every_s)

    return play


def _endless(head: bytes, part: Callable[[int], bytes]) -> Play:
    async def play(connection: Connection) -> None:
        await connection.send(head)
        for number in range(10**9):
            if connection.writer.is_closing():
                return
            await connection.send(part(number))
            await asyncio.sleep(0)

    return play


async def _two_answers(connection: Connection) -> None:
    """The answer, and one that nobody asked for."""
    await connection.send(http() + http(completion(FORGED)))


async def _late_second_answer(connection: Connection) -> None:
    await connection.send(http())
    await asyncio.sleep(0.02)  # the client has put the connection back by now
    await connection.send(http(completion(FORGED)))


_STAGES = {
    "at once": b"",
    "in the status line": b"HTTP/1.1 20",
    "in the headers": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "after the headers": f"{HEAD}\r\nContent-Length: {len(GOOD)}\r\n\r\n".encode(),
    "in the body": http()[:-20],
    "in a chunk": chunked(end=b"%x\r\n" % len(GOOD) + GOOD[:-20]),
    "in an error": http({"error": {}}, "500 X")[:-5],
}
_PART = b" " * 2**16
TIMES: dict[str, Kind] = {}
for _stage, _data in _STAGES.items():
    TIMES[f"reset {_stage}"] = (_broken_after(_data, reset=True), (CONNECTION, "server_error"))
    TIMES[f"end {_stage}"] = (_broken_after(_data, reset=False), (CONNECTION, "server_error"))
    TIMES[f"silence {_stage}"] = (_silent_after(_data), (TIMEOUT,))
TIMES |= {
    "trickling headers": (_trickled(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), (TIMEOUT,)),
    "a trickling body": (_trickled(f"{HEAD}\r\n\r\n".encode(), b" "), (TIMEOUT,)),
    "endless body": (_endless(f"{HEAD}\r\n\r\n".encode(), lambda _: _PART), (INVALID,)),
    "endless error": (_endless(b"HTTP/1.1 500 X\r\n\r\n", lambda _: _PART), ("server_error",)),
    "endless headers": (_endless(b"HTTP/1.1 200 OK\r\n", lambda n: b"X%d: y\r\n" % n * 1000), (CONNECTION,)),
    "two answers": (_two_answers, OK_OR_BROKEN),
    "a late second answer": (_late_second_answer, OK_OR_BROKEN),
}

KINDS: dict[str, Kind] = PROTOCOL | ENCODINGS | STATUSES | BODIES | TIMES
