"""Ends a host's process without tearing down its modules, which would only take time.

`register` is called before anything else is imported, so that all other exit handlers run before the process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading

THREADS_S = 0.5
"""At the end, threads that user code left running get this long."""

_served = threading.Event()


def register() -> None:
    """End the process as soon as all exit handlers that are registered from now on have run.

    Handlers that were registered before (by coverage, by tracers) would not run any longer, so the process then ends
    in the ordinary way. Without `atexit._ncallbacks` no host could start: every test with a host would notice.
    """
    if atexit._ncallbacks() == 0:
        atexit.register(_end_if_served)


def finish() -> None:
    """Let the interpreter end, and end the process soon if a thread of user code prevents that.

    Without `atexit._run_exitfuncs` such a thread would keep its host alive until the engine kills it;
    tests/engine/test_engine_hosts.py notices.
    """
    _served.set()
    ending = threading.Event()
    atexit.register(ending.set)  # the interpreter calls it once it has waited for the threads

    def end() -> None:
        if not ending.wait(THREADS_S):
            atexit._run_exitfuncs()
            _end()

    threading.Thread(target=end, name="osmosis-end", daemon=True).start()


def _end_if_served() -> None:
    """End the process, unless it did not serve to the end: its exit status must then stay visible."""
    if _served.is_set():
        _end()


def _end() -> None:
    with contextlib.suppress(Exception):  # user code may have replaced it
        sys.stdout.flush()
    os._exit(0)
