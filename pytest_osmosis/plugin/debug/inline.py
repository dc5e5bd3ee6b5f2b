"""`--osmosis-inline`: user code runs in pytest's main thread, one rollout at a time, so that debuggers see it.

A run is rolled out and scored while its item waits for it in setup: what it prints is the item's, a breakpoint stops in
it, Ctrl-C interrupts it. Engine, journal and outcomes are those of any other eval.
"""

from __future__ import annotations

import bdb
import contextlib
from contextlib import AbstractContextManager

import pytest

from pytest_osmosis.engine.inline_host import InlineHost, Loop
from pytest_osmosis.plugin.debug.tracing import stop_at_entry, tracing

THROUGH = (KeyboardInterrupt, bdb.BdbQuit, pytest.exit.Exception)
"""What ends pytest, or a debugger's session, and is no failure of the code in which it was raised."""


class Inline:
    """The hosts in this process, by eval; also those that only replay what another one recorded."""

    def __init__(self, *, trace: bool) -> None:
        self._trace = trace
        self._loop = Loop()
        self._hosts: dict[str, InlineHost] = {}

    def host(self, eval_id: str) -> InlineHost:
        """The host of an eval; it loads its code once somebody serves it."""
        if eval_id not in self._hosts:
            around = self._entering if self._trace else contextlib.nullcontext
            self._hosts[eval_id] = InlineHost(self._loop, around, THROUGH)
        return self._hosts[eval_id]

    def close(self) -> None:
        """Close clients and the loop."""
        for host in self._hosts.values():
            host.close()
        self._loop.close()

    def _entering(self) -> AbstractContextManager[None]:
        return tracing(stop_at_entry)
