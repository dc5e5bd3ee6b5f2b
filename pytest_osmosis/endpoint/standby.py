"""The standby: threads that serve the endpoint while code holds the host's event loop.

A synchronous client that is called on the loop holds it, and waits for an answer that the loop would have to give. So
one thread watches the socket, and accepts connections that the host's loop has left waiting for a while. They are
served by `OWN_LOOP`. A connection stays with the loop that serves it.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable
from contextvars import Context
from threading import Event, Thread
from time import sleep
from typing import TYPE_CHECKING

from pytest_osmosis.models.own_loop import OWN_LOOP

if TYPE_CHECKING:
    from aiohttp import web

FIRST_GRACE_S = 0.25
"""The host's loop may be as late as this when it is only busy."""
GRACE_S = 0.02
"""The same, once a synchronous client has come here: it may hold the loop with each of its connections."""
TURN_S = 0.005
"""A loop that is not held begins another turn within this time."""
NO_DESCRIPTOR_S = 0.1
UNWIND_S = 1.0
"""The time that requests have to end when the standby is closed."""

GetLoop = Callable[[], asyncio.AbstractEventLoop | None]


class Standby:
    """Serves connections of the socket `listening` while `loop()` is held, or is None, because it does not run yet.

    `protocol` returns the HTTP protocol of connections for the loop in which it is called.
    """

    def __init__(self, listening: socket.socket, loop: GetLoop, protocol: Callable[[], web.Server]) -> None:
        self._listening = listening
        self._host_loop = loop
        self._new_protocol = protocol
        self._grace_s = FIRST_GRACE_S
        self._wake, self._woken = socket.socketpair()
        self._protocol: web.Server | None = None
        self._thread = Thread(target=self._watch, name="osmosis-standby", daemon=True)
        Context().run(self._thread.start)  # it belongs to no run, whichever run needs it first

    def expect_holders(self) -> None:
        """Take connections sooner: a synchronous client was served."""
        self._grace_s = GRACE_S

    async def close(self) -> None:
        """End the thread, and the requests that are served."""
        with contextlib.suppress(OSError):
            self._wake.send(b".")
        self._thread.join()
        if self._protocol is not None:
            await OWN_LOOP.wait_for(self._protocol.shutdown(UNWIND_S))
        self._wake.close()
        self._woken.close()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        stop = self._woken.fileno()
        with contextlib.suppress(OSError, ValueError):  # user code closed the socket
            while all(descriptor != stop for descriptor, _ in poll.poll()):
                if self._is_held():
                    self._accept()
                else:
                    sleep(TURN_S)  # the loop accepts now, or cannot, because no descriptor is left

    def _is_held(self) -> bool:
        """Return True if the host's loop begins no turn within the grace."""
        loop, turned = self._host_loop(), Event()
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(turned.set, context=Context())
        return not turned.wait(self._grace_s)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except BlockingIOError:  # the host's loop was faster
            return
        except OSError:
            sleep(NO_DESCRIPTOR_S)
            return
        connection.setblocking(False)
        OWN_LOOP.start(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        self._protocol = self._protocol or self._new_protocol()
        await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)


async def begins_turn(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True if another thread's loop begins a turn soon, and False if code holds it."""
    own, turned = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.call_soon_threadsafe(own.call_soon_threadsafe, turned.set, context=Context())
        async with asyncio.timeout(TURN_S):
            await turned.wait()
    except (RuntimeError, TimeoutError):
        return False
    return True
