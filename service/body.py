"""The bytes of a request: read within a limit and a time, decompressed within the same limit."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping

from starlette.requests import Request

from service.errors import BadRequest, Gone, TooLarge, TooSlow, WrongType

Body = bytes | bytearray

_INLINE_BYTES = 32 * 1024  # below this, a thread costs more than the decompression
_WINDOW = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


async def read_body(request: Request, limit: int, seconds: float) -> Body:
    """The whole body, refused as soon as it is known to be too large or too slow."""
    encoding = check_headers(request.headers, limit)
    try:
        async with asyncio.timeout(seconds):
            body = await _collect(request, limit)
    except TimeoutError:
        raise too_slow(seconds) from None
    return await unpack(body, encoding, limit)


def check_headers(headers: Mapping[str, str], limit: int) -> str:
    """The encoding of a body that may come, by what its headers say."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "") and encoding not in _WINDOW:
        raise WrongType(
            f"Content-Encoding must be gzip, deflate or identity, got {encoding!r}",
        )
    declared = headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    return encoding


async def unpack(body: Body, encoding: str, limit: int) -> Body:
    """The body as it was before it was packed."""
    if encoding not in _WINDOW:
        return body
    if len(body) <= _INLINE_BYTES:
        return inflate(body, _WINDOW[encoding], limit)
    return await asyncio.to_thread(inflate, body, _WINDOW[encoding], limit)


async def _collect(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Gone("the caller left before the body was complete")
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks) if len(chunks) > 1 else chunks[0]


def inflate(data: Body, window: int, limit: int) -> bytes:
    """Decompress, never holding more than the limit however small the bomb."""
    unpacker = zlib.decompressobj(window)
    try:
        body = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise BadRequest(f"the body is not valid compressed data: {error}") from None
    if len(body) > limit:
        raise too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequest("the compressed body is cut short or followed by other bytes")
    return body


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body must not exceed {limit} bytes")


def too_slow(seconds: float) -> TooSlow:
    return TooSlow(f"the body did not arrive within {seconds:g} seconds")
