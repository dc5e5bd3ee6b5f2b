"""A server on loopback that nobody may ask: it remembers each request that reaches it.

A browser tells of requests that a policy refused too, so its own events prove nothing. This server counts what really
left the page. As a proxy it also gets the requests to all other hosts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OF_BROWSERS = frozenset({"CONNECT content-autofill.googleapis.com:443"})
"""Requests of chromium itself, which asks its maker about fields of pages that came over HTTP."""


class Canary:
    """The requests that reached the server, as "METHOD target"."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._requests: list[str] = []
        self._lock = threading.Lock()  # protects the list, which threads of the server extend

    def add(self, request: str) -> None:
        if request in OF_BROWSERS:
            return
        with self._lock:
            self._requests.append(request)

    def taken(self) -> list[str]:
        with self._lock:
            taken, self._requests = self._requests, []
        return taken


@contextmanager
def serving() -> Iterator[Canary]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            canary.add(f"{self.command} {self.path}")
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_POST = do_PUT = do_OPTIONS = do_CONNECT = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    canary = Canary(server.server_port)
    thread = threading.Thread(target=server.serve_forever, name="canary", daemon=True)
    thread.start()
    try:
        yield canary
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
