"""Requests to a monitor while an eval runs."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from email.message import Message
from urllib.error import HTTPError

import pytest

from pytest_osmosis.addons.verifiers.prime_files import Heartbeat
from pytest_osmosis.record.run_id import RunId
from tests.plugin.workspaces import wait_until

URL = "https://monitor.example/ping/private"


class Monitor:
    """A monitor, as urllib asks it: it answers once its gate is open, or fails."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.gate = threading.Event()
        self.failure: Exception | None = None

    def open(self, url: str, timeout: float) -> io.BytesIO:
        self.seen.append(url)
        self.gate.wait(60.0)
        if self.failure is not None:
            raise self.failure
        return io.BytesIO()


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitor]:
    monitor = Monitor()
    monkeypatch.setattr("urllib.request.urlopen", monitor.open)
    yield monitor
    monitor.gate.set()


def test_a_row_that_is_done_is_told_unless_a_request_is_open(monitor: Monitor) -> None:
    heartbeat = Heartbeat(URL, [RunId(row, index) for row in range(3) for index in range(2)])
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


@pytest.mark.parametrize("failure", [HTTPError(URL, 404, "Not Found", Message(), None), ValueError("no address")])
def test_failures_are_told_once_and_without_the_rest_of_the_url(monitor: Monitor, failure: Exception) -> None:
    monitor.failure = failure
    monitor.gate.set()
    heartbeat = Heartbeat(URL, [RunId(row, 0) for row in range(2)])
    for row in range(2):
        heartbeat.run_done(RunId(row, 0))
        wait_until(lambda: not heartbeat._idle.locked(), "the answer")
    heartbeat.close()
    assert heartbeat.notice == f"2 of 2 heartbeats to monitor.example failed: {failure}"
