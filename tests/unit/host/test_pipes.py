"""The host's ends of the pipes to the engine."""

from __future__ import annotations

import os
import threading

import pytest

from pytest_osmosis.host import server
from pytest_osmosis.host.protocol import Request
from pytest_osmosis.host.server import RequestReader

DEADLINE_S = 60.0


def test_a_host_whose_reader_breaks_ends_as_it_would_hear_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(requests: list[Request]) -> None:
        if requests:
            raise TypeError("user code replaced a builtin")

    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(server, "end_process_group", ended.set)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe, os.fdopen(write, "wb") as engine:
        reader = RequestReader(pipe)
        reader.start()
        (thread,) = (each for each in threading.enumerate() if each.name == "osmosis-reader")
        reader.deliver_to(broken)
        engine.write(b'{"op": "close"}\n')
        engine.flush()

        thread.join(DEADLINE_S)
    assert ended.is_set()
