"""Limit what an endpoint may send back: the number of bytes, and the encoding.

This is a response hook of the HTTP client. It replaces the response's stream before the stream is read, so that an
answer never takes more memory than the limit, compressed or not: a few kilobytes of gzip can expand to gigabytes.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import openai

from soul.errors import JudgeFailure

if TYPE_CHECKING:
    import httpx2 as httpx
else:  # the HTTP library that the installed SDK uses: httpx2 since openai 3, httpx before
    httpx = importlib.import_module(openai.DefaultAsyncHttpxClient.__bases__[0].__module__)

# The only encoding that requests accept: the standard library can decompress it in bounded pieces.
ENCODING = "gzip"
_ERROR_BYTES = 65_536  # how much of an error's body is read
_GZIP_HEADER = 16 + zlib.MAX_WBITS


def bounded(limit: int) -> Callable[[httpx.Response], Awaitable[None]]:
    """A response hook that lets at most `limit` bytes of an answer through, before and after decompression.

    The body of an error response is cut at 64 KB; its status still decides what happens. Reading the body of any other
    response that is too large, damaged or in another encoding raises a `JudgeFailure`.
    """

    async def bound(response: httpx.Response) -> None:
        # Otherwise the server's charset decides, and Python has codecs that are not for text (zlib, undefined).
        response.encoding = "utf-8"
        encoding = response.headers.pop("content-encoding", "").strip().lower()
        assert isinstance(response.stream, httpx.AsyncByteStream)
        kind = _ErrorStream if response.is_error else _AnswerStream
        response.stream = kind(response.stream, encoding, limit)

    return bound


class _AnswerStream(httpx.AsyncByteStream):
    """The bytes of an answer, decompressed and bounded."""

    def __init__(self, stream: httpx.AsyncByteStream, encoding: str, limit: int) -> None:
        self._stream, self._encoding, self._limit = stream, encoding, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        packed = self._encoding in (ENCODING, f"x-{ENCODING}")
        if not packed and self._encoding not in ("", "identity"):
            raise JudgeFailure(
                "bad_request",
                f"the answer's encoding is {self._encoding[:40]!r}, but the request accepts {ENCODING} only",
            )
        unpack = zlib.decompressobj(_GZIP_HEADER)
        received = unpacked = 0
        async for part in self._stream:
            received += len(part)
            self._check(received)
            if not packed:
                yield part
                continue
            while part and not unpack.eof:
                piece = _unpacked(unpack, part, self._limit + 1 - unpacked)
                unpacked += len(piece)
                self._check(unpacked)
                yield piece
                part = unpack.unconsumed_tail
        if packed and not unpack.eof:
            raise JudgeFailure("connection", f"the answer's {ENCODING} data is incomplete")

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise JudgeFailure("invalid", f"the answer is larger than {self._limit / 1e6:g} MB")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _ErrorStream(_AnswerStream):
    """The beginning of an error's body; empty if it cannot be read, because the status is enough."""

    def __init__(self, stream: httpx.AsyncByteStream, encoding: str, limit: int) -> None:
        super().__init__(stream, encoding, min(limit, _ERROR_BYTES))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in super().__aiter__():
                yield part
        except JudgeFailure:
            return


def _unpacked(unpack: zlib._Decompress, part: bytes, most: int) -> bytes:
    try:
        return unpack.decompress(part, most)
    except zlib.error as error:
        raise JudgeFailure("connection", f"the answer's {ENCODING} data is damaged: {error}") from None
