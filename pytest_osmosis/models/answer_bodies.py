"""The bodies of answers: read and unpacked within a bound, before anybody else sees them.

`WholeResponse` is aiohttp's response with this done. Every client has it, because all of them send through aiohttp.
Only gzip and deflate are asked for: zlib can stop in the middle of a piece, so that a small body does not become a
large one at once. Libraries above see bodies that are not packed.
"""

from __future__ import annotations

import asyncio
import codecs
import sys
import zlib
from collections.abc import Iterator, Mapping

from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, HttpVersion10, HttpVersion11, StreamReader
from aiohttp.connector import Connection
from multidict import CIMultiDict, CIMultiDictProxy

MB = 2**20
MAX_ERROR_BYTES = MB
"""The bound on the body of an answer that is not 2xx. Of this only the beginning is shown."""

ASKED_FOR = ("gzip", "deflate", "identity")
GZIP = ("gzip", "x-gzip")
HTTP_VERSIONS = (HttpVersion10, HttpVersion11)
TRANSFER_CODINGS = ("chunked", "identity", "")
PIECE_BYTES = 2**18
MAX_MEMBERS = 100
FREE_VALUES = 1000
VALUE_BYTES = 64
"""The usual size of a number, a short string, a list or a part of an object in Python."""
HEADER_BYTES = 2


class UnfitAnswer(Exception):
    """An answer whose body was not read to its end. `text` completes "the server answered 200 OK with"."""

    def __init__(self, text: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.headers = headers


class TooLarge(UnfitAnswer):
    """An answer whose body is larger than its bound."""


class WholeResponse(ClientResponse):
    """A response whose body is there, unpacked, once the response is. `max_bytes` bounds the body of a 2xx answer.

    `start`, `_headers` and `_raw_headers` are internal to aiohttp. If they change, bodies are no longer bounded:
    tests/unit/models/test_answer_bodies.py notices.
    """

    max_bytes = 64 * MB
    body = b""

    async def start(self, connection: Connection) -> ClientResponse:
        """Read the answer. Raises `UnfitAnswer` if the body is too large or cannot be unpacked."""
        protocol = connection.protocol
        assert protocol is not None
        await super().start(connection)
        self.body = await self._unpacked()
        whole = StreamReader(protocol, limit=2**62, loop=asyncio.get_running_loop())
        whole.feed_data(self.body)
        whole.feed_eof()
        self.content = whole
        return self

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """The headers as they are true of the unpacked body. Its charset is left out: JSON has one, and others lie."""
        return CIMultiDictProxy(CIMultiDict((_text(name), _text(value)) for name, value in self.raw_headers))

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The same as bytes."""
        return tuple(
            (name, value.partition(b";")[0] if name.lower() == b"content-type" else value)
            for name, value in self._raw_headers
            if name.lower() != b"content-encoding"
        )

    async def _unpacked(self) -> bytes:
        self._check_status_line()
        limit = self.max_bytes if self.status // 100 == 2 else min(MAX_ERROR_BYTES, self.max_bytes)
        too_large = self._too_large(f"a body of more than {limit / MB:g} MB")
        if (self.content_length or 0) > limit:
            raise too_large
        unpacker = self._unpacker()
        body, n_packed = bytearray(), 0
        try:
            async for packed in self.content.iter_any():
                n_packed += len(packed)
                for piece in unpacker.pieces(packed):
                    body += piece
                    if len(body) > limit:
                        raise too_large
                if n_packed > limit:
                    raise too_large
            if not unpacker.is_complete:
                raise self._not_unpacked("it ends early")
            if self.status // 100 == 2 and read_size(body, limit) > limit:
                raise self._too_large(f"a body that needs more than {limit / MB:g} MB to be read")
            return bytes(body)
        except zlib.error as error:
            raise self._not_unpacked(str(error)) from None
        finally:
            body.clear()  # the traceback of an error would keep it

    def _check_status_line(self) -> None:
        fault = None
        if self.version not in HTTP_VERSIONS:
            fault = f"a status line of HTTP/{'.'.join(map(str, self.version or ()))}"
        elif not 200 <= self.status < 600:
            fault = "a status that no answer can have"
        if fault is not None:
            raise UnfitAnswer(fault, self.status, self._headers)

    def _unpacker(self) -> Unpacker | Unpacked:
        transfer = self._named("Transfer-Encoding")
        if transfer not in TRANSFER_CODINGS:
            raise self._not_unpacked(f'Transfer-Encoding "{transfer}" was not asked for')
        coding = self._named("Content-Encoding")
        if coding in ("", "identity"):
            return Unpacked()
        if coding not in (*GZIP, "deflate"):
            raise self._not_unpacked(f'Content-Encoding "{coding}" was not asked for')
        return Unpacker(coding)

    def _named(self, header: str) -> str:
        """Return the codings that a header names, which can be there several times."""
        return ", ".join(self._headers.getall(header, ())).strip().lower()

    def _too_large(self, text: str) -> TooLarge:
        hint = "; raise [model] max_response_mb if that is right" if self.status // 100 == 2 else ""
        return TooLarge(text + hint, self.status, self._headers)

    def _not_unpacked(self, reason: str) -> UnfitAnswer:
        return UnfitAnswer(f"a body that cannot be unpacked: {reason}", self.status, self._headers)


def read_size(body: bytes | bytearray, limit: int) -> int:
    """Return the bytes that the JSON in `body` takes as text and as values, without its strings; exact above `limit`.

    One wide character makes all characters of a text as wide. Values are counted by what separates them.
    """
    n_values = max(0, sum(map(body.count, (b",", b"[", b"{"))) - FREE_VALUES)
    width = 1 if body.isascii() else 4
    size = len(body) * width + n_values * VALUE_BYTES
    if width == 1 or size <= limit:
        return size
    return _text_size(body) + n_values * VALUE_BYTES


def _text_size(body: bytes | bytearray) -> int:
    """Return the bytes that `body` takes as text. It is decoded in parts, to need less than that."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    n_chars, width = 0, 1
    for begin in range(0, len(body), PIECE_BYTES):
        part = decoder.decode(bytes(body[begin : begin + PIECE_BYTES]))
        n_chars += len(part)
        width = max(width, sys.getsizeof(part) // max(1, len(part)))
    return n_chars * width


def _text(header: bytes) -> str:
    return header.decode("utf-8", "surrogateescape")


def bounded(max_bytes: int) -> type[WholeResponse]:
    """Return the class of responses whose bodies have at most `max_bytes`."""
    return type("BoundedResponse", (WholeResponse,), {"max_bytes": max_bytes})


async def asking_for_known_codings(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """Send a request that asks only for codings of bodies that are unpacked here."""
    asked = request.headers.get("Accept-Encoding", "").lower().split(",")
    known = [coding.strip() for coding in asked if coding.partition(";")[0].strip() in ASKED_FOR]
    request.headers["Accept-Encoding"] = ", ".join(known) or "identity"
    return await send(request)


class Unpacked:
    """Passes on a body that is not packed."""

    is_complete = True

    def pieces(self, packed: bytes) -> Iterator[bytes]:
        yield packed


class Unpacker:
    """Unpacks a gzip or deflate body in pieces of at most PIECE_BYTES.

    Some servers send gzip in several members, and deflate without the header of zlib.
    """

    def __init__(self, coding: str) -> None:
        self._wbits = zlib.MAX_WBITS + 16 if coding in GZIP else None
        self._begin = b""
        self._member = zlib.decompressobj()
        self._n_members = 0

    @property
    def is_complete(self) -> bool:
        """False in the middle of a member. A body without a byte is complete."""
        return self._member.eof if self._n_members else not self._begin

    def pieces(self, packed: bytes) -> Iterator[bytes]:
        """Yield the content of `packed`, the next part of the body. Raises `zlib.error` if it breaks the coding."""
        rest = self._begin + packed
        if self._n_members == 0 and len(rest) < HEADER_BYTES:
            self._begin = rest
            return
        self._begin = b""
        while True:
            if self._n_members == 0 or self._member.eof:
                if not rest:
                    return
                self._member = self._next_member(rest)
            piece = self._member.decompress(rest, PIECE_BYTES)
            if piece:
                yield piece
            rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if not rest and len(piece) < PIECE_BYTES:
                return

    def _next_member(self, packed: bytes) -> zlib._Decompress:
        self._n_members += 1
        if self._n_members > MAX_MEMBERS:
            raise zlib.error(f"it has more than {MAX_MEMBERS} members")
        if self._wbits is None:
            self._wbits = zlib.MAX_WBITS if _has_zlib_header(packed) else -zlib.MAX_WBITS
        return zlib.decompressobj(self._wbits)


def _has_zlib_header(packed: bytes) -> bool:
    """Return True for the header that deflate should begin with. Source: RFC 1950, section 2.2."""
    return packed[0] & 0x0F == 8 and (packed[0] << 8 | packed[1]) % 31 == 0
