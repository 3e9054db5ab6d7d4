"""The bytes of a request: read within a limit and a time, decompressed within the same limit."""

from __future__ import annotations

import asyncio
import zlib

from starlette.requests import Request

from service.errors import BadRequest, Gone, TooLarge, TooSlow, WrongType

_INLINE_BYTES = 32 * 1024  # below this, a thread costs more than the decompression
_WINDOW = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """The whole body, refused as soon as it is known to be too large or too slow."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "") and encoding not in _WINDOW:
        raise WrongType(
            f"Content-Encoding must be gzip, deflate or identity, got {encoding!r}",
        )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            body = await _collect(request, limit)
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {seconds:g} seconds") from None
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
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks) if len(chunks) > 1 else chunks[0]


def inflate(data: bytes, window: int, limit: int) -> bytes:
    """Decompress, never holding more than the limit however small the bomb."""
    unpacker = zlib.decompressobj(window)
    try:
        body = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise BadRequest(f"the body is not valid compressed data: {error}") from None
    if len(body) > limit:
        raise _too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequest("the compressed body is cut short or followed by other bytes")
    return body


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body must not exceed {limit} bytes")
