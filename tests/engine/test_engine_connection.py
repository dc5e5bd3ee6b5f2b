"""The connection to a host process: messages may wait for their reader, but the host never does."""

from __future__ import annotations

import queue
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_osmosis.engine import host_connection as pipes
from pytest_osmosis.engine.host_connection import Died, Heard, HostConnection, HostEnviron
from pytest_osmosis.host.protocol import HostCode, Setup
from pytest_osmosis.processes.child import Child

DEADLINE_S = 60.0
FOR_EVER_S = 1000.0

TALKS = """
def say(text):
    print(text, flush=True)
for line in sys.stdin:
    if '"op":"pause"' in line:
        say('{"ev": "unused", "id": 1}')
        for number in range(64):
            say('{"ev": "refused", "error": "%s", "details": ""}' % ("x" * 50_000))
        say('{"ev": "unused", "id": 2}')
    if '"op":"close"' in line:
        break
"""


@contextmanager
def talking(tmp_path: Path, heard: queue.SimpleQueue[Heard | Died]) -> Iterator[HostConnection]:
    """Open the connection to a host that writes three megabytes on request."""
    process = Child(TALKS, subprocess.DEVNULL)
    setup = Setup(HostCode("roll", str(tmp_path), (), {}))
    connection = HostConnection(
        "host", setup, environ=HostEnviron({}), log=tmp_path / "log", post=heard.put, loaded=process
    )
    try:
        yield connection
    finally:
        connection.gather_s = 0.0
        connection.kill()
        assert connection.join(DEADLINE_S)


@pytest.mark.parametrize("size", [pipes.SIZE_BYTES, 1 << 16], ids=["large", "small"])
def test_a_host_that_writes_much_never_waits_for_its_reader(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are gathered meanwhile are read once they need not wait."""
    monkeypatch.setattr(pipes, "SIZE_BYTES", size)
    heard: queue.SimpleQueue[Heard | Died] = queue.SimpleQueue()
    with talking(tmp_path, heard) as connection:
        connection.gather_s = FOR_EVER_S
        connection.send([{"op": "pause"}])
        n_heard = 0
        while n_heard < 1 + 64 - size // 50_000:
            gathered = heard.get(timeout=DEADLINE_S)
            assert isinstance(gathered, Heard)
            n_heard += len(gathered.events)
        connection.gather_s = 0.0
        connection.send([{"op": "close"}])
        while isinstance(said := heard.get(timeout=DEADLINE_S), Heard):
            n_heard += len(said.events)
    assert n_heard == 66
    assert said == Died(connection, "exit status 0")
