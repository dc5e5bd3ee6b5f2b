"""The end of a host's process, quick where nobody needs it to be slow.

Imported before anything else, so that what others want done at exit is done before the process is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading

THREADS_S = 0.5
"""Threads that user code left running are waited for so long when all is done."""

_served = threading.Event()


def come_last() -> None:
    """End the process when all that was registered since has been called: to take modules apart only takes time.

    Where something was registered as the interpreter started (coverage, tracers) it would not be called any more, so
    the interpreter ends then as it always does.
    """
    if atexit._ncallbacks() == 0:
        atexit.register(_end_process)


def leave() -> None:
    """Let the interpreter end, and end the process soon if a thread of the user's keeps it from that."""
    _served.set()
    ending = threading.Event()
    atexit.register(ending.set)  # the interpreter calls it once it has waited for the threads

    def end() -> None:
        if not ending.wait(THREADS_S):
            atexit._run_exitfuncs()
            _end()

    threading.Thread(target=end, name="osmosis-end", daemon=True).start()


def _end_process() -> None:
    """A process that did not come to its end shows how it ended."""
    if _served.is_set():
        _end()


def _end() -> None:
    with contextlib.suppress(Exception):  # it may be the user's by now
        sys.stdout.flush()
    os._exit(0)
