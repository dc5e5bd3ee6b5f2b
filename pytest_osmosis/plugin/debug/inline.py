"""`--osmosis-inline`: user code runs in pytest's main thread, one rollout at a time, for debuggers.

A run is rolled out and scored during the setup of its item. So its output is captured for the item, a breakpoint
stops in it, and Ctrl-C interrupts it. Engine, journal and outcomes are the same as for any other eval.
"""

from __future__ import annotations

import bdb
import contextlib
from contextlib import AbstractContextManager

import pytest

from pytest_osmosis.engine.inline_host import InlineHost, Loop
from pytest_osmosis.plugin.debug.tracing import stop_at_entry, tracing

THROUGH = (KeyboardInterrupt, bdb.BdbQuit, pytest.exit.Exception)
"""Exceptions that end pytest or a debugger's session; they are not failures of user code."""


class InlineHosts:
    """The hosts in pytest's process, by eval id; some only replay recorded runs for `--pdb`."""

    def __init__(self, *, trace: bool) -> None:
        self._trace = trace
        self._loop = Loop()
        self._hosts: dict[str, InlineHost] = {}

    def host(self, eval_id: str) -> InlineHost:
        """Return the host of an eval; it loads the user's code when it is first served."""
        if eval_id not in self._hosts:
            around = self._entering if self._trace else contextlib.nullcontext
            self._hosts[eval_id] = InlineHost(self._loop, around, THROUGH)
        return self._hosts[eval_id]

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()
        self._loop.close()

    def _entering(self) -> AbstractContextManager[None]:
        return tracing(stop_at_entry)
