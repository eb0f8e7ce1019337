"""Limits on what an endpoint may send back: how many bytes, and in which encoding.

A response hook of the HTTP client. It replaces a response's stream before anyone reads it, so that no answer is held in
memory beyond the limit, compressed or not: a few kilobytes of gzip may stand for gigabytes.
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
else:  # the HTTP library that the installed SDK stands on: httpx2 since openai 3, httpx before
    httpx = importlib.import_module(openai.DefaultAsyncHttpxClient.__bases__[0].__module__)

# Asked for alone: the standard library unpacks it in bounded pieces, whatever else is installed.
ENCODING = "gzip"
_ERROR_BYTES = 65_536  # of an error's body; the rest of it is not read
_GZIP_HEADER = 16 + zlib.MAX_WBITS


def bounded(limit: int) -> Callable[[httpx.Response], Awaitable[None]]:
    """A response hook that lets `limit` bytes of an answer through, counted before and after decompression.

    An error's body ends after 64 KB, so that its status is what counts. The body of any other answer that is too
    large, damaged, or in an encoding that nobody asked for raises a `JudgeFailure` when it is read.
    """

    async def bound(response: httpx.Response) -> None:
        # A server names the charset, and Python has codecs (zlib, undefined) that are none of text.
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
                "bad_request", f"the answer's encoding is {self._encoding[:40]!r}, and only {ENCODING} was asked for"
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
            raise JudgeFailure("connection", f"the answer's {ENCODING} data ends in the middle")

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise JudgeFailure("invalid", f"the answer is larger than {self._limit / 1e6:g} MB (max_answer_mb)")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _ErrorStream(_AnswerStream):
    """The beginning of an error's body; nothing where it cannot be read, for the status says enough."""

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
