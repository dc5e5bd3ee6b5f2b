"""`python -m tests.guard.linked N ...`: evals of N rollouts, whose engine and hosts take turns in one thread.

Both ends of the protocol are the real ones. Only the processes and threads between them are missing, and the clock, so
that all counts depend on N alone. Those of each eval are printed as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TICK_S = 2.0
"""Each sleep lasts as long, so that whatever happens now and then happens in each turn."""
END_S = 10_000.0
"""An eval that lasts as long hangs."""
now_s = 1000.0


def monotonic() -> float:
    return now_s


def sleep(_: float) -> None:
    global now_s
    now_s += TICK_S


if __name__ == "__main__":  # before modules of ours take them
    vars(time).update(monotonic=monotonic, perf_counter=monotonic, sleep=sleep)

from pytest_osmosis.engine.engine import Close  # noqa: E402
from pytest_osmosis.engine.host_connection import SIZE_BYTES, Heard, HostEnviron, Post, events_on, room_in, waiting_in  # noqa: E402
from pytest_osmosis.engine.inline_host import InlineConnection  # noqa: E402
from pytest_osmosis.evals import EvalRun, RunSettings, SelectedRuns, finish  # noqa: E402
from pytest_osmosis.host import output  # noqa: E402
from pytest_osmosis.host.chat import clients_of  # noqa: E402
from pytest_osmosis.host.host_endpoint import HostEndpoint  # noqa: E402
from pytest_osmosis.host.loading import load  # noqa: E402
from pytest_osmosis.host.main import HostServer  # noqa: E402
from pytest_osmosis.host.protocol import Request, Setup, encode, secrets_of  # noqa: E402
from pytest_osmosis.text.redaction import Redaction  # noqa: E402
from tests.guard.counting import Counts, counted  # noqa: E402
from tests.guard.workspace import SECRETS, write_workspace  # noqa: E402
from tests.preparing import prepare  # noqa: E402


class LinkedHost(InlineConnection):
    """A host in this process, and the connection to it. It works when `step` is called."""

    def __init__(self, name: str, setup: Setup, post: Post, traffic: Counter[str]) -> None:
        super().__init__(name, post, lambda *_: None)
        self.counts = Counts()
        self._traffic = traffic
        self._requests = b""
        self._events, events = os.pipe()
        room_in(events)
        code, clients, endpoint = load(setup), clients_of(setup, SECRETS), HostEndpoint(setup.code, SECRETS)
        redaction = Redaction(secrets_of(setup.code, SECRETS))
        self._server = HostServer(setup, code, clients, endpoint, events, redaction)
        self._loop: Any = self._server._loop
        self._loop.set_task_factory(self._server._monitor._task)
        self._server._writer.emit(code.ready)

    def send(self, messages: Iterable[Request]) -> None:
        self._requests += encode(messages)

    def kill(self) -> None:
        raise AssertionError(f"the engine ends {self.name}, which would go on here")

    def step(self) -> bytes:
        """Do what can be done now, and return the lines of the events."""
        requests, self._requests = self._requests, b""
        with counted(self.counts):
            if requests:
                self._server._post([json.loads(line) for line in requests.splitlines()])
            is_busy = True
            while is_busy:
                self._loop.call_soon(self._loop.stop)
                self._loop.run_forever()
                is_busy = bool(self._loop._ready)
        events = os.read(self._events, SIZE_BYTES) if waiting_in(self._events) else b""
        note(self._traffic, f"engine to {self.name}", requests)
        note(self._traffic, f"{self.name} to engine", events)
        return events


def note(traffic: Counter[str], way: str, lines: bytes) -> None:
    """Count messages or events by kind, and their bytes."""
    messages = [json.loads(line) for line in lines.splitlines()]
    traffic.update(f"{way}, {message.get('op') or message['ev']}" for message in messages)
    traffic[f"{way}, bytes"] += len(lines)


def measured(n: int, folder: Path) -> dict[str, Any]:
    """Return what an eval of `n` rollouts in `folder` needs, its start and end included."""
    gc.collect()
    hosts: list[LinkedHost] = []
    traffic = Counter[str]()
    told: list[object] = []
    engine, results = Counts(), Counts()

    def spawn(name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> LinkedHost:
        hosts.append(LinkedHost(name, setup, post, traffic))
        return hosts[-1]

    prepared = prepare(write_workspace(folder, n), environ=SECRETS)
    run = EvalRun.start(
        prepared,
        SelectedRuns.of(prepared, list(prepared.plan.runs())),
        RunSettings(SECRETS, probe=False, spawn=spawn),
        rerun=str,
        on_done=lambda *done: told.append(done),
        hosts_wait=True,
    )
    loop = run.engine.loop
    run.engine._thread = SimpleNamespace(ident=1)  # type: ignore[assignment]  # its turns are taken here

    def turn() -> None:
        said = [(host, events) for host in hosts if (events := host.step())]
        if not said:
            sleep(TICK_S)
            assert now_s < END_S, f"nothing goes on: {run.engine.notices.texts}"
        with counted(engine):
            for host, events in said:
                lines = events.splitlines()
                heard = events_on(lines)
                assert len(heard) == len(lines), f"{host.name}: no message: {lines[len(heard)]!r}"
                loop.inbox.put(Heard(host, heard))
            loop.turn()

    loop.hosts.start()
    while not (loop.loaded.is_set() and all(host.ready for host in loop.hosts)):
        turn()
    run.go()
    while len(told) < n:
        turn()
    loop.inbox.put(Close(0.0))
    with counted(engine):
        loop.turn()
        loop.end()
    loop.ended.set()
    with counted(results):
        (finished,) = finish([run])
        finished.write()
    assert finished.results.measured == n, run.engine.notices.texts or finished.results.stopped
    note(traffic, "journal", run.directory.journal.read_bytes())
    traffic["objects in cycles"] = gc.collect()
    sides = {"engine": engine, **{host.name: host.counts for host in hosts}, "results": results}
    sums = {f"{side}, {kind}": n for side, counts in sides.items() for kind, n in counts.sums.items()}
    return {"traffic": traffic, "counts": sums, **{side: counts.functions for side, counts in sides.items()}}


if __name__ == "__main__":
    stdout = os.dup(1)
    output.install(str)
    gc.disable()  # what it calls, and when, depends on how many objects there are; cycles are counted at the end
    with tempfile.TemporaryDirectory() as temporary:
        evals = [measured(int(size), Path(temporary)) for size in sys.argv[1:]]
    os.write(stdout, json.dumps(evals).encode())
