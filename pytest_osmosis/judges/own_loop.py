"""An event loop in a thread of its own, for judges that are asked by code that blocks, or from another loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
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
        future = self._start(work)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            failure = error
        raise failure.with_traceback(None)  # the frames of the other thread say nothing to the caller

    async def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for some work in another loop. Cancelling the wait cancels it."""
        return await asyncio.wrap_future(self._start(work))

    def soon(self, call: Any, *arguments: Any) -> None:
        """Call a function in this loop, if it was ever needed. May be called from any thread."""
        if self._loop is not None and self._pid == os.getpid():
            self._loop.call_soon_threadsafe(call, *arguments)

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="osmosis-judges", daemon=True).start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)


OWN_LOOP = OwnLoop()
