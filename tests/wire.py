"""A server on loopback that writes bytes of the test's choice, for answers that no HTTP library would send.

    with WireServer(answer(b"HTTP/1.1 200 OK", b"content-length: 2", body=b"{}")) as server:
        ...  # talk to server.base_url
    assert server.n_requests == 1

Each request takes the next answer of the script; when the script is used up the last one stays.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

DEADLINE_S = 120.0
CHUNK = bytes(2**16)

Answer = Callable[[], Iterable[bytes]]
"""Makes the pieces of one answer; the connection is closed after the last."""


class WireServer:
    """A server with a thread for each connection, which reads whole requests and answers with bytes."""

    def __init__(self, *script: Answer) -> None:
        self._script = script
        self._lock = threading.Lock()  # protects the counts and _open
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.n_requests = 0
        self.n_connections = 0
        self.port = int(self._listener.getsockname()[1])
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> WireServer:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a connection of the wire server did not end"

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)
            self.n_connections += 1
        try:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(DEADLINE_S)
                while _read_request(connection):
                    with self._lock:
                        answer = self._script[min(self.n_requests, len(self._script) - 1)]
                        self.n_requests += 1
                    for piece in answer():
                        connection.sendall(piece)
                    if not getattr(answer, "keep_alive", False):
                        connection.shutdown(socket.SHUT_WR)
                        return
        finally:
            with self._lock:
                self._open.discard(connection)


def _read_request(connection: socket.socket) -> bool:
    """Read one request with a content-length. Return False at the end of the connection."""
    read = b""
    while b"\r\n\r\n" not in read:
        piece = connection.recv(2**16)
        if not piece:
            return False
        read += piece
    head, _, body = read.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        piece = connection.recv(2**16)
        if not piece:
            return False
        missing -= len(piece)
    return True


def wire(*pieces: bytes) -> Answer:
    """Return an answer of exactly these bytes."""
    return lambda: iter(pieces)


def answer(*headers: bytes, status: bytes = b"HTTP/1.1 200 OK", body: bytes = b"", keep_alive: bool = False) -> Answer:
    """Return an answer with these headers and a content-length, unless the headers say how long the body is."""
    framed = any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in headers)
    lines = [status, *headers] if framed else [status, *headers, b"content-length: %d" % len(body)]
    if not keep_alive:
        lines.append(b"connection: close")
    content = b"\r\n".join(lines) + b"\r\n\r\n" + body

    def pieces() -> Iterator[bytes]:
        yield content

    pieces.keep_alive = keep_alive  # type: ignore[attr-defined]
    return pieces


def endless(head: bytes, repeated: bytes = CHUNK) -> Answer:
    """Return an answer that goes on until the client closes the connection."""

    def pieces() -> Iterator[bytes]:
        yield head
        while True:
            yield repeated

    return pieces
