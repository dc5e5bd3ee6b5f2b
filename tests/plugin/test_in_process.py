"""Sessions in the process of the tests, which leave nothing; and the socket on which workers request outcomes."""

from __future__ import annotations

import builtins
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import process
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_osmosis.plugin import eval_queue
from pytest_osmosis.plugin.items import Answer, UnitKey
from pytest_osmosis.plugin.named_evals import NamedEvals
from pytest_osmosis.plugin.session import EvalSession
from pytest_osmosis.plugin.under_xdist import OutcomeServer
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.verdicts.pass_rule import Outcome
from tests.plugin.workspaces import Workspace, wait_until

LEFT_BEHIND = {
    "signal handlers": "import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN)",
    "environment": "import os; os.environ['LEFT_BEHIND'] = '1'",
    "log handlers": "import logging; logging.getLogger().addHandler(logging.NullHandler())",
    "garbage collector": "import gc; gc.disable()",
    "open files": "import builtins; builtins.left = open('left', 'w')",
    "hooks": "import sys; sys.excepthook = print",
    "constants": "from pytest_osmosis.plugin import eval_queue; eval_queue.INTERRUPT_GRACE_S += 1",
}


@pytest.fixture
def cleaned() -> Iterator[None]:
    """Undo at the end what those sessions leave behind."""
    handlers, grace_s = list(logging.root.handlers), eval_queue.INTERRUPT_GRACE_S
    yield
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    logging.root.handlers[:] = handlers
    gc.enable()
    sys.excepthook = sys.__excepthook__
    eval_queue.INTERRUPT_GRACE_S = grace_s
    if file := vars(builtins).pop("left", None):
        file.close()


@pytest.mark.usefixtures("cleaned")
@pytest.mark.parametrize("kind", LEFT_BEHIND)
def test_what_a_session_leaves_behind_fails_its_test(workspace: Workspace, kind: str) -> None:
    workspace.write("conftest.py", f"def pytest_sessionfinish():\n    {LEFT_BEHIND[kind]}\n")
    workspace.write("test_python.py", "def test_python(): ...\n")

    with pytest.raises(AssertionError, match=f"the session left behind: .*{kind}"):
        workspace.run()

    assert "LEFT_BEHIND" not in os.environ


class Evals:
    """The part of a session that a server uses: the same outcome for every unit."""

    naming = NamedEvals(())

    def answer(self, key: UnitKey) -> Answer:
        return Answer(Outcome("passed", f"{key.eval_id} {key.unit}", "", (), 0.5), False)


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
    serving = {"osmosis-outcomes", "osmosis-worker"}
    wait_until(lambda: not serving & {thread.name for thread in threading.enumerate()}, "the threads to end")
