"""What an endpoint can answer, and what the gateway makes of it.

`KINDS`: name -> (answer, outcomes that are right). An outcome is "ok" or the cause of the failure.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping
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


STATUS_LINES: dict[str, Kind] = {
    "nothing": (b"", (CONNECTION,)),
    "a line break": (b"\r\n", (CONNECTION,)),
    "no status line": (GOOD, (CONNECTION,)),
    "half a status line": (b"HTTP/1.1", (CONNECTION,)),
    "no status": (raw("HTTP/1.1"), (CONNECTION,)),
    "status is a word": (raw("HTTP/1.1 abc OK"), (CONNECTION,)),
    "status of five digits": (raw("HTTP/1.1 99999 OK"), (CONNECTION,)),
    "negative status": (raw("HTTP/1.1 -200 OK"), (CONNECTION,)),
    "status zero": (raw("HTTP/1.1 000 OK"), (CONNECTION, "bad_request")),
    "arabic status": (raw("HTTP/1.1 ٢٠٠ OK"), (CONNECTION,)),
    "no reason": (raw(f"HTTP/1.1 200\r\nContent-Length: {len(GOOD)}"), OK_OR_BROKEN),
    "non-ASCII reason": (raw(f"HTTP/1.1 200 Größe\r\nContent-Length: {len(GOOD)}"), OK_OR_BROKEN),
    "invalid UTF-8 reason": (raw(f"HTTP/1.1 200 \udcff\udcfe\r\nContent-Length: {len(GOOD)}"), OK_OR_BROKEN),
    "reason of 100 kB": (raw(f"HTTP/1.1 200 {'x' * 100_000}"), OK_OR_BROKEN),
    "control characters in the reason": (raw("HTTP/1.1 200 \x00\x01\x1b[2J"), OK_OR_BROKEN),
    "HTTP/9.9": (raw("HTTP/9.9 200 OK"), OK_OR_BROKEN),
    "HTTP/1.0": (raw("HTTP/1.0 200 OK\r\nContent-Type: application/json"), (OK,)),
    "lower-case http": (raw("http/1.1 200 OK"), (CONNECTION,)),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (CONNECTION,)),
    "an SSH server": (b"SSH-2.0-OpenSSH_9.6\r\n", (CONNECTION,)),
    "a TLS alert": (b"\x15\x03\x01\x00\x02\x02\x46", (CONNECTION,)),
    "a mail server": (b"220 mail.example.org ESMTP ready\r\n", (CONNECTION,)),
    "an ICY stream": (b"ICY 200 OK\r\n\r\n", (CONNECTION,)),
    "zeros": (bytes(4096), (CONNECTION,)),
    "a request": (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", (CONNECTION,)),
}

HEADERS: dict[str, Kind] = {
    "1,000 headers": (http(None, "200 OK", *(f"X-{n}: y" for n in range(1000))), OK_OR_BROKEN),
    "100,000 headers": (http(None, "200 OK", *(f"X-{n}: y" for n in range(100_000))), (CONNECTION,)),
    "a header of 20 kB": (http(None, "200 OK", f"X: {'y' * 20_000}"), OK_OR_BROKEN),
    "a header of 1 MB": (http(None, "200 OK", f"X: {'y' * 1_000_000}"), (CONNECTION,)),
    "a header's name of 90 kB": (http(None, "200 OK", f"{'y' * 90_000}: x"), OK_OR_BROKEN),
    "header without a colon": (http(None, "200 OK", "no colon"), OK_OR_BROKEN),
    "blank before the colon": (http(None, "200 OK", "X : y"), OK_OR_BROKEN),
    "empty header name": (http(None, "200 OK", ": y"), OK_OR_BROKEN),
    "folded header": (http(None, "200 OK", "X: a\r\n b"), OK_OR_BROKEN),
    "NUL in a header": (http(None, "200 OK", "X: a\x00b"), OK_OR_BROKEN),
    "invalid UTF-8 in a header": (http(None, "200 OK", "X: \udcff\udcfe"), OK_OR_BROKEN),
    "bare line feeds": (http().replace(b"\r\n", b"\n"), OK_OR_BROKEN),
    "two equal lengths": (http(None, "200 OK", f"Content-Length: {len(GOOD)}"), OK_OR_BROKEN),
    "two different lengths": (http(None, "200 OK", "Content-Length: 3"), (CONNECTION,)),
    "negative length": (raw(f"{HEAD}\r\nContent-Length: -1"), (CONNECTION,)),
    "length is a word": (raw(f"{HEAD}\r\nContent-Length: many"), (CONNECTION,)),
    "arabic length": (raw(f"{HEAD}\r\nContent-Length: ٣"), (CONNECTION,)),
    "length of 10,000 digits": (raw(f"{HEAD}\r\nContent-Length: {'9' * 10_000}"), (CONNECTION,)),
    "length of 10^18": (raw(f"{HEAD}\r\nContent-Length: {10**18}"), (CONNECTION, INVALID)),
    "length too large": (raw(f"{HEAD}\r\nContent-Length: {len(GOOD) + 9}"), (CONNECTION,)),
    "length too small": (raw(f"{HEAD}\r\nContent-Length: {len(GOOD) - 9}"), (INVALID, CONNECTION)),
    "length zero": (raw(f"{HEAD}\r\nContent-Length: 0"), (INVALID, CONNECTION)),
    "no length": (raw(HEAD), (OK,)),
    "length and chunks": (raw(f"{HEAD}\r\nTransfer-Encoding: chunked\r\nContent-Length: 5"), (CONNECTION,)),
    "unknown transfer encoding": (raw(f"{HEAD}\r\nTransfer-Encoding: x-secret"), (CONNECTION, OK)),
    "cookies": (http(None, "200 OK", *(f"Set-Cookie: c{n}={n}; expires=never" for n in range(50))), OK_OR_BROKEN),
    "a hostile cookie": (http(None, "200 OK", 'Set-Cookie: a="\\777; Max-Age=9999999999; domain=\x01'), OK_OR_BROKEN),
    "no content type": (raw(f"HTTP/1.1 200 OK\r\nContent-Length: {len(GOOD)}"), (OK,)),
    "content type of nonsense": (http(kind="\x7f;;;=;charset"), OK_OR_BROKEN),
    "content type text": (http(kind="text/plain"), (OK,)),
}
for _charset in ("zlib", "base64", "undefined", "idna", "punycode", "utf-7", "rot13", "utf-16", "no-such", "x" * 5000):
    _short = _charset[:12]
    HEADERS[f"charset {_short}"] = (http(kind=f"text/plain; charset={_charset}"), (OK,))
    HEADERS[f"500 with charset {_short}"] = (
        http(b"\xff broken", "500 Oops", kind=f"text/plain; charset={_charset}"),
        ("server_error",),
    )

CHUNKS: dict[str, Kind] = {
    "chunks": (chunked(GOOD[:9], GOOD[9:]), (OK,)),
    "single bytes as chunks": (chunked(*(GOOD[n : n + 1] for n in range(len(GOOD)))), (OK,)),
    "chunk size is a word": (chunked(end=b"zz\r\n" + GOOD), (CONNECTION,)),
    "negative chunk size": (chunked(end=b"-5\r\n" + GOOD), (CONNECTION,)),
    "chunk size of 100 digits": (chunked(end=b"F" * 100 + b"\r\n" + GOOD), (CONNECTION,)),
    "chunk size of 100 kB": (chunked(end=b"0" * 100_000 + b"5\r\n" + GOOD), (CONNECTION,)),
    "chunk too short": (chunked(end=b"ffff\r\n" + GOOD), (CONNECTION,)),
    "no last chunk": (chunked(GOOD, end=b""), (CONNECTION,)),
    "chunk without line break": (chunked(end=b"5\r\nabcdefgh"), (CONNECTION,)),
    "chunk extension of 1 MB": (chunked(end=b"1;" + b"x" * 1_000_000 + b"\r\n{\r\n0\r\n\r\n"), (CONNECTION, INVALID)),
    "trailers": (chunked(GOOD, end=b"0\r\nX: y\r\n\r\n"), (OK,)),
    "100,000 trailers": (chunked(GOOD, end=b"0\r\n" + b"X: y\r\n" * 100_000 + b"\r\n"), OK_OR_BROKEN),
}


def _packed(body: bytes, encoding: str, status: str = "200 OK") -> bytes:
    return http(body, status, f"Content-Encoding: {encoding}")


_BOMB = gzip.compress(bytes(64_000_000), 9)
ENCODINGS: dict[str, Kind] = {
    "gzip, which nobody asked for": (_packed(gzip.compress(GOOD), "GZIP"), ("bad_request",)),
    "identity": (_packed(GOOD, "identity"), (OK,)),
    "empty encoding": (_packed(GOOD, ""), (OK,)),
    "a bomb": (_packed(_BOMB, "gzip"), ("bad_request",)),
    "a bomb in a 500": (_packed(_BOMB, "gzip", "500 Oops"), ("server_error",)),
    "401 in an unknown encoding": (_packed(b"\x00", "br", "401 No"), ("auth",)),
}

STATUSES: dict[str, Kind] = {
    f"status {code}": (http({"error": {"message": "no"}}, f"{code} X"), (cause,))
    for cause, codes in {
        "auth": (401, 402, 403),
        "not_found": (404, 300, 301, 302, 303, 305, 307, 308),
        "bad_request": (400, 405, 406, 410, 413, 415, 418, 421, 422, 431, 451, 499),
        "server_error": (408, 409, 425, 500, 501, 502, 503, 504, 505, 507, 511, 520, 524, 529, 599, 600, 999),
    }.items()
    for code in codes
}
STATUSES |= {
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + http(), (OK,)),
    "102 and 103 first": (b"HTTP/1.1 102 P\r\n\r\nHTTP/1.1 103 E\r\nLink: x\r\n\r\n" + http(), (OK,)),
    "100 and nothing": (b"HTTP/1.1 100 Continue\r\n\r\n", (CONNECTION,)),
    "ten thousand times 100": (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000 + http(), OK_OR_BROKEN),
    "101": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", ("bad_request", CONNECTION)),
    "201": (http(None, "201 Created"), (OK,)),
    "206": (http(None, "206 Partial"), (OK,)),
    "299": (http(None, "299 X"), (OK,)),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", (INVALID,)),
    "204 with a body": (http(None, "204 No Content"), (INVALID, CONNECTION)),
    "205": (http(b"", "205 Reset"), (INVALID,)),
    "304": (b"HTTP/1.1 304 Not Modified\r\n\r\n", ("not_found",)),
    "exhausted quota": (http({"error": {"code": "insufficient_quota"}}, "429 X"), ("auth",)),
    "no credit": (http({"error": {"code": 402, "message": "Insufficient credits"}}, "402 X"), ("auth",)),
    "a moderation": (http({"error": {"message": "Your input was flagged for violence"}}, "403 X"), ("refusal",)),
    "a flagged account": (http({"error": {"message": "Your account was flagged"}}, "403 X"), ("auth",)),
    "error code is a list": (http({"error": {"code": ["x"], "message": [1]}}, "429 X"), _LIMITED),
    "error is a list": (http([[]], "400 X"), ("bad_request",)),
    "error is text": (http({"error": "no"}, "400 X"), ("bad_request",)),
    "error is a number": (http(b"7", "500 X"), ("server_error",)),
    "error of nothing": (http(b"", "500 X"), ("server_error",)),
    "error is a page": (http(b"<html><body>502</body></html>", "502 X", kind="text/html"), ("server_error",)),
    "error of invalid UTF-8": (http(b"\xff\xfe", "500 X"), ("server_error",)),
    "deep error": (http(_deep("[", "]"), "500 X"), ("server_error",)),
    "deep 400": (http(_deep('{"error":', "}"), "400 X"), ("bad_request",)),
    "huge integer in an error": (http(b'{"error": {"code": %s}}' % (b"9" * 10_000), "500 X"), ("server_error",)),
    "an error of 2 MB": (http(b" " * 2_000_000, "500 X"), ("server_error",)),
    "an error with a lone surrogate": (http(b'{"error": {"message": "\\ud83d"}}', "400 X"), ("bad_request",)),
}
for _status in (301, 302, 307, 308):
    for _to in (
        "/elsewhere",
        "//other.invalid/v1",
        "https://127.0.0.1:1/",
        "file:///etc/passwd",
        "",
        "http://[::",
        "\x01",
    ):
        STATUSES[f"{_status} to {_to!r}"] = (
            http({}, f"{_status} X", f"Location: {_to}"),
            ("not_found", CONNECTION),
        )

RETRY_AFTERS: dict[str, Kind] = {
    f"retry after {value[:24]!r}": (http({"error": {}}, "429 X", f"Retry-After: {value}"), _LIMITED)
    for value in (
        *("", "0", "0.0001", "-1", "-99999999999", "1e309", "nan", "inf", "٢", "²", "0x10", "1,5", "+1", " 1 ", "1 1"),
        *("9" * 400, "9" * 5000, "0." + "9" * 5000, "soon", "\x01"),
        *("Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -2359", "Mon, 01 Jan 0001 00:00:00 +2359"),
        *("Wed, 99 Oct 2065 07:28:00 GMT", "Wed, 21 Oct 2065 99:99:99 GMT", "21 Oct", ",,,", "Wed, 21 Oct"),
        *("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 +99999999", "1 Jan 1 1:1:1 x"),
    )
}
RETRY_AFTERS["two Retry-Afters"] = (http({}, "429 X", "Retry-After: 0", "Retry-After: 99"), _LIMITED)

BODIES: dict[str, Kind] = {
    "good": (http(), (OK,)),
    "empty": (http(b""), (INVALID,)),
    "blanks": (http(b" \n" * 100), (INVALID,)),
    "a page": (http(b"<!doctype html><html>Sign in</html>", kind="text/html"), (INVALID,)),
    "a page as JSON": (http(b"<!doctype html><html>Sign in</html>"), (INVALID,)),
    "plain text": (http(b"Look again.", kind="text/plain"), (INVALID,)),
    "XML": (http(b"<?xml version='1.0'?><x/>", kind="text/xml"), (INVALID,)),
    "events": (http(b"data: " + GOOD + b"\n\ndata: [DONE]\n\n", kind="text/event-stream"), (INVALID,)),
    "lines of JSON": (http(GOOD + b"\n" + GOOD), (INVALID,)),
    "garbage behind": (http(GOOD + b"garbage"), (INVALID,)),
    "truncated JSON": (http(GOOD[:-20]), (INVALID,)),
    "only text": (http(json.loads(VERDICT)), (INVALID,)),
    "invalid UTF-8": (http(GOOD.replace(b"Look", b"\xff\xfe")), (INVALID,)),
    "overlong UTF-8": (http(GOOD.replace(b"Look", b"\xc0\xaf")), (INVALID,)),
    "surrogates in UTF-8": (http(GOOD.replace(b"Look", b"\xed\xa0\xbd")), (INVALID,)),
    "UTF-16": (http(GOOD.decode().encode("utf-16")), (INVALID,)),
    "UTF-32": (http(GOOD.decode().encode("utf-32")), (INVALID,)),
    "a byte order mark": (http(b"\xef\xbb\xbf" + GOOD), (OK,)),
    "zeros as body": (http(bytes(1000)), (INVALID,)),
    "deep arrays": (http(_deep("[", "]")), (INVALID,)),
    "deep objects": (http(_deep('{"a":', "}")), (INVALID,)),
    "deep field": (http(_field("x", _deep("[", "]").decode())), (INVALID,)),
    "open brackets": (http(b"[" * 900_000), (INVALID,)),
    "huge integer": (http(_field("created", "9" * 10_000)), (OK, INVALID)),
    "integer of 900 kB": (http(_field("created", "9" * 900_000)), (OK, INVALID)),
    "huge exponent": (http(_field("created", "1e999999999")), (OK, INVALID)),
    "NaN": (http(_field("created", "NaN")), (OK, INVALID)),
    "infinity": (http(_field("created", "-Infinity")), (OK, INVALID)),
    "a lone surrogate": (http(_field("x", '"\\ud83d"')), (OK, INVALID)),
    "one key twice": (http(_field("choices", "[]")), (OK, INVALID)),
    "an escape that is none": (http(_field("x", '"\\x41"')), (INVALID,)),
    "a comment": (http(b"/* */" + GOOD), (INVALID,)),
    "2 MB of blanks": (http(b" " * 2_000_000 + GOOD), (INVALID,)),
    "an error": (http({"error": {"code": 502, "message": "upstream overloaded"}}), ("server_error",)),
    "an error and no choices": (http({"error": "upstream overloaded", "choices": []}), ("server_error",)),
    "the model broke off": (http(_message(finish_reason="error")), ("server_error",)),
    "no error": (http({"error": None, **completion()}), (OK,)),
    "300,000 fields": (http(b'{"x":[' + b"{}," * 300_000 + b"{}]," + GOOD[1:]), (OK,)),
}
for _name, _value in {"null": None, "true": True, "a number": 7, "text": "x", "a list": [], "an object": {}}.items():
    BODIES[f"the answer is {_name}"] = (http(as_body(_value)), (INVALID,))
    BODIES[f"choices is {_name}"] = (http(completion(choices=_value)), (INVALID,))
    BODIES[f"the choice is {_name}"] = (http(completion(choices=[_value])), (INVALID,))
    BODIES[f"message is {_name}"] = (
        http(_message(message=None) if False else completion(choices=[{"message": _value}])),
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

VERDICTS: dict[str, Kind] = {
    f"verdict: {name}": (http(completion(text)), (INVALID,))
    for name, text in {
        "deep": _deep("[", "]").decode(),
        "deep object": _deep('{"critique":', "}").decode(),
        "huge integer": '{"critique": ' + "9" * 10_000 + "}",
        "NaN": '{"critique": NaN}',
        "twice": '{"critique": "a", "critique": "b"}',
        "not closed": '{"critique": "a"',
        "text around": f"Sure: {VERDICT}",
        "a list of it": f"[{VERDICT}]",
        "a NUL": "\x00",
        "blanks of 1 MB": " " * 1_000_000 + "x",
        "fences of 1 MB": "```json\n" * 125_000,
        "thoughts of 1 MB": "<think>" * 140_000,
    }.items()
}
VERDICTS["verdict: a lone surrogate"] = (http(completion('{"critique": "\\ud83d"}')), (OK, INVALID))
VERDICTS["verdict: a raw lone surrogate"] = (http(completion('{"critique": "\ud83d"}')), (OK, INVALID))
VERDICTS["verdict: thoughts first"] = (http(completion(f"<think>hm</think>{VERDICT}")), (OK,))


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
    "a trickling status line": (_trickled(b"HTTP/1.1 200 ", b"x"), (TIMEOUT,)),
    "trickling headers": (_trickled(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), (TIMEOUT,)),
    "a trickling body": (_trickled(f"{HEAD}\r\n\r\n".encode(), b" "), (TIMEOUT,)),
    "trickling chunks": (_trickled(chunked(end=b""), b"1\r\n \r\n"), (TIMEOUT,)),
    "a trickling error": (_trickled(b"HTTP/1.1 500 X\r\n\r\n", b" "), (TIMEOUT,)),
    "trickling 100s": (_trickled(b"", b"HTTP/1.1 100 C\r\n\r\n"), (TIMEOUT,)),
    "endless body": (_endless(f"{HEAD}\r\n\r\n".encode(), lambda _: _PART), (INVALID,)),
    "endless chunks": (_endless(chunked(end=b""), lambda _: b"10000\r\n" + _PART + b"\r\n"), (INVALID,)),
    "endless error": (_endless(b"HTTP/1.1 500 X\r\n\r\n", lambda _: _PART), ("server_error",)),
    "endless status line": (_endless(b"HTTP/1.1 200 ", lambda _: _PART), (CONNECTION,)),
    "endless headers": (_endless(b"HTTP/1.1 200 OK\r\n", lambda n: b"X%d: y\r\n" % n * 1000), (CONNECTION,)),
    "endless 100s": (_endless(b"", lambda _: b"HTTP/1.1 100 C\r\n\r\n" * 100), (TIMEOUT, CONNECTION)),
    "endless trailers": (_endless(chunked(GOOD, end=b"0\r\n"), lambda n: b"X%d: y\r\n" % n * 1000), OK_OR_BROKEN),
    "two answers": (_two_answers, OK_OR_BROKEN),
    "a late second answer": (_late_second_answer, OK_OR_BROKEN),
}

GROUPS: Mapping[str, Mapping[str, Kind]] = {
    "status lines": STATUS_LINES,
    "headers": HEADERS,
    "chunks": CHUNKS,
    "encodings": ENCODINGS,
    "statuses": STATUSES,
    "retry-after": RETRY_AFTERS,
    "bodies": BODIES,
    "verdicts": VERDICTS,
    "times": TIMES,
}
KINDS: dict[str, Kind] = {name: kind for group in GROUPS.values() for name, kind in group.items()}
