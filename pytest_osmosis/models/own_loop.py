"""An event loop in a thread of its own, for requests of code that blocks, and of code in another loop.

Code that blocks may hold the loop that would have to send its request. Nothing of a user runs here, so nothing holds
this one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class OwnLoop:
    """A loop in a daemon thread, started with the first piece of work, and again in a process that was forked.

    Work runs in the context (`contextvars`) of the code that asks for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    @property
    def is_here(self) -> bool:
        """True for code that runs in this loop."""
        return self._loop is not None and asyncio._get_running_loop() is self._loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for some work, and return or raise what it does. An interrupt cancels it."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            failure = error
        raise failure.with_traceback(None)  # the frames of the other thread say nothing to the caller

    async def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for some work in another loop. Cancelling the wait cancels it."""
        return await asyncio.wrap_future(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work, in any thread."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                thread = threading.Thread(target=self._loop.run_forever, name="osmosis-own-loop", daemon=True)
                Context().run(thread.start)  # it belongs to no run, whichever run needs it first
            return asyncio.run_coroutine_threadsafe(work, self._loop)


OWN_LOOP = OwnLoop()
