"""The controller's side of pytest-xdist: it owns the engines, and workers request outcomes over a local socket.

Whatever scheduler is used and however often a worker dies, each run is rolled out once.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_osmosis.plugin.items.node_ids import unit_key
from pytest_osmosis.plugin.rollout_tests import model_source

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pytest_osmosis.plugin.command.named_evals import NamedEvals
    from pytest_osmosis.plugin.session import EvalSession

RETRY_S = 0.01
CLOSE_S = 1.0
"""The time that `close` gives each thread that serves a worker; by then the workers have ended."""


class OutcomeServer:
    """Answers workers. Each has a thread of its own: a question comes in as JSON, the answer goes out as JSON."""

    def __init__(self, evals: EvalSession, naming: NamedEvals) -> None:
        from multiprocessing.connection import Listener

        self._asks_models = naming.source == "model"
        self._evals = evals
        self._key = secrets.token_hex(16)
        try:
            self._listener = Listener(authkey=self._key.encode())
        except OSError:  # the path of a Unix socket is limited to about 100 bytes, and TMPDIR may be deep
            self._listener = Listener(("127.0.0.1", 0), authkey=self._key.encode())
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, name="osmosis-outcomes", daemon=True)]
        self._threads[0].start()

    def workerinput(self) -> dict[str, Any]:
        plans = [plan.to_json() for plans in self._evals.plans.values() for plan in plans]
        args = list(self._evals.config.args)
        socket = {"address": self._listener.address, "key": self._key}
        return {**socket, "plans": plans, "args": args, "asks_models": self._asks_models}

    def close(self) -> None:
        """Accept no further worker, and wait a moment for the connected ones to hang up."""
        from multiprocessing.connection import Client

        self._closing = True
        with contextlib.suppress(OSError):
            Client(self._listener.address).close()  # nothing else wakes the thread that accepts
        for thread in self._threads:
            thread.join(CLOSE_S)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection = self._listener.accept()
            except Exception:  # a client without the key, or a worker that died in the handshake
                time.sleep(RETRY_S)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="osmosis-worker", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Connection[bytes, bytes]) -> None:
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                reply = self._reply(json.loads(connection.recv_bytes()))
                connection.send_bytes(json.dumps(reply).encode("ascii"))

    def _reply(self, question: Mapping[str, Any]) -> dict[str, Any]:
        match question["ask"]:
            case "outcome":
                key = unit_key(question["test"])
                assert key is not None, "a worker requested an outcome of something other than a run or a row"
                answer = self._evals.answer(key)
                return {"outcome": answer.outcome.to_json(), "gated": answer.gated}
            case "keep_back":
                self._evals.keep_back(key for key in map(unit_key, question["tests"]) if key is not None)
                return {}
            case _:
                return model_source.reply(self._evals, question)
