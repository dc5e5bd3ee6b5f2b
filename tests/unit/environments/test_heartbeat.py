"""Requests to a monitor while an eval runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pytest_osmosis.addons.verifiers.prime_files import Heartbeat
from pytest_osmosis.record.run_id import RunId
from tests.plugin.workspaces import wait_until

DEADLINE_S = 60.0


class Monitor(ThreadingHTTPServer):
    """A monitor that answers once its gate is open."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Beat)
        self.seen: list[str] = []
        self.gate = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/ping/private"


class Beat(BaseHTTPRequestHandler):
    server: Monitor

    def do_GET(self) -> None:
        self.server.seen.append(self.path)
        self.server.gate.wait(DEADLINE_S)
        self.send_response(404 if self.path.endswith("gone") else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request wait longer than users would for a monitor that a busy machine runs."""
    monkeypatch.setattr("pytest_osmosis.addons.verifiers.prime_files.HEARTBEAT_TIMEOUT_S", DEADLINE_S)


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    server = Monitor()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.gate.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_row_that_is_done_is_told_unless_a_request_is_open(monitor: Monitor) -> None:
    heartbeat = Heartbeat(monitor.url, [RunId(row, index) for row in range(3) for index in range(2)])
    heartbeat.run_done(RunId(0, 0))
    heartbeat.run_done(RunId(1, 0))
    assert monitor.seen == []
    heartbeat.run_done(RunId(0, 1))
    wait_until(lambda: len(monitor.seen) == 1, "the request")
    heartbeat.run_done(RunId(1, 1))
    monitor.gate.set()
    wait_until(lambda: not heartbeat._idle.locked(), "the answer")
    heartbeat.run_done(RunId(2, 0))
    heartbeat.run_done(RunId(2, 1))
    wait_until(lambda: len(monitor.seen) == 2 and not heartbeat._idle.locked(), "another")
    assert heartbeat.notice is None


def test_failures_are_told_once_and_without_the_rest_of_the_url(monitor: Monitor) -> None:
    monitor.gate.set()
    heartbeat = Heartbeat(f"{monitor.url}/gone", [RunId(row, 0) for row in range(2)])
    for row in range(2):
        heartbeat.run_done(RunId(row, 0))
        wait_until(lambda: not heartbeat._idle.locked(), "the answer")
    assert heartbeat.notice == "2 of 2 heartbeats to 127.0.0.1 failed: HTTP Error 404: Not Found"
    monitor.server_close()
    closed = Heartbeat(monitor.url.replace(str(monitor.server_address[1]), "9"), [RunId(0, 0)])
    closed.run_done(RunId(0, 0))
    wait_until(lambda: not closed._idle.locked(), "the failure")
    closed.close()
    assert "1 of 1 heartbeat to 127.0.0.1 failed" in (closed.notice or "")
