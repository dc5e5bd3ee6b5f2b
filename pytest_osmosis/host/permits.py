"""Permits for requests, requested from the engine because a provider's limits hold for all hosts together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import count

from pytest_osmosis.host.protocol import AnsweredEvent, AskEvent, Emit, Key, Size, UnusedEvent
from pytest_osmosis.models.base import ChatRequest, Usage
from pytest_osmosis.text.safe import dumps

ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Sampling keys that limit the length of an answer."""


_NUMBERS = count()
"""The numbers of all permits of this process: its event loops share one engine, which tells permits by them."""
_WAITING: dict[int, asyncio.Future[None]] = {}
"""The requests that wait for their permits, by its number."""


def size_of(request: ChatRequest) -> Size:
    given = map(request.sampling.get, ANSWER_LIMITS)
    limits = [limit for limit in given if isinstance(limit, int) and not isinstance(limit, bool)]
    text = dumps({"messages": list(request.messages), "tools": list(request.tools)})
    return Size(len(text), min(limits) if limits else None)


class PermitClient:
    """Requests permits from the engine, in any event loop from which `emit` may be called, and reports what became of
    each. Those `of_judges` are under limits of their own.
    """

    def __init__(self, emit: Emit, of_judges: bool = False) -> None:
        self._emit = emit
        self._of_judges = of_judges

    async def get(self, key: Key, size: Size) -> Permit:
        """Wait for a permit. Cancelling the wait gives the permit back."""
        permit = Permit(next(_NUMBERS), self._emit)
        granted = _WAITING[permit.number] = asyncio.get_running_loop().create_future()
        event: AskEvent = {
            "ev": "ask",
            **key.to_json(),  # type: ignore[typeddict-item]  # it lacks optional fields
            "id": permit.number,
            "chars": size.chars,
            "max_tokens": size.max_tokens,
        }
        self._emit({**event, "judge": True} if self._of_judges else event)
        try:
            await granted
        except BaseException:
            permit.give_back()
            raise
        finally:
            del _WAITING[permit.number]
        return permit


def grant(numbers: Iterable[int]) -> None:
    """Let the requests with these permits be sent. Numbers of cancelled waits have no effect.

    May be called from any thread: code that holds the host's event loop may wait for one.
    """
    for number in numbers:
        granted = _WAITING.get(number)
        if granted is not None:
            with suppress(RuntimeError):  # its loop was closed meanwhile
                granted.get_loop().call_soon_threadsafe(_grant, granted)


def _grant(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)


class Permit:
    """Permission to send one request. The outcome is reported once."""

    def __init__(self, number: int, emit: Callable[[AnsweredEvent | UnusedEvent], None]) -> None:
        self.number = number
        self._emit = emit
        self._reported = False

    def give_back(self) -> None:
        """Report that the request was not sent."""
        self._report({"ev": "unused", "id": self.number})

    def answered(self, usage: Usage | None) -> None:
        """Report that the request is over; `usage` is None if its tokens were not counted."""
        self._report({"ev": "answered", "id": self.number, "usage": usage.to_json() if usage is not None else None})

    def _report(self, event: AnsweredEvent | UnusedEvent) -> None:
        if not self._reported:
            self._reported = True
            self._emit(event)


GetPermit = Callable[[], Awaitable[Permit]]
"""Waits for the permit of one request."""


def permit_for(permits: PermitClient | None, key: Key, request: ChatRequest) -> GetPermit | None:
    """Return a function that waits for a permit to send `request`, or None if none is needed."""
    if permits is None:
        return None
    size = size_of(request)
    return lambda: permits.get(key, size)
