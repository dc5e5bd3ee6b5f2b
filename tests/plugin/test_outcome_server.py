"""The socket on which workers of xdist request outcomes: its place, and its end."""

from __future__ import annotations

import threading
from multiprocessing import process
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_osmosis.plugin.items import Answer, UnitKey
from pytest_osmosis.plugin.named_evals import NamedEvals
from pytest_osmosis.plugin.session import EvalSession
from pytest_osmosis.plugin.under_xdist import OutcomeServer
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.plugin.workspaces import wait_until


class Evals:
    """The part of a session that a server uses: the same outcome for every unit."""

    naming = NamedEvals(())

    def answer(self, key: UnitKey) -> Answer:
        return Answer(Outcome("passed", f"{key.eval_id} {key.unit}", "", (), 0.5), False)


def serving_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("osmosis-outcomes", "osmosis-worker")]


@pytest.mark.parametrize("deep", [False, True], ids=["a short path", "a path too long for a socket"])
def test_workers_are_answered_and_no_thread_stays(deep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if deep:
        folder = tmp_path / ("d" * 100)
        folder.mkdir()
        monkeypatch.setitem(cast(Any, process.current_process())._config, "tempdir", str(folder))
    server = OutcomeServer(cast(EvalSession, Evals()))
    with Client(server._listener.address) as stranger:  # has no key, and hangs up
        stranger.recv_bytes()
    with Client(server._listener.address, authkey=server._key.encode()) as worker:
        worker.send(("outcome", UnitKey("x.toml::x", RunId(3, 1))))
        assert worker.recv().outcome.reason == "x.toml::x row3-run1"
        assert isinstance(server._listener.address, tuple) == deep
    server.close()
    wait_until(lambda: not serving_threads(), "the threads to end")
