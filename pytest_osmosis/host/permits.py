"""A permit for each request, from the engine, where limits of the provider hold for all hosts together.

Used from one event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count

from pytest_osmosis.host.protocol import AnsweredEvent, AskEvent, Emit, Key, Size, UnusedEvent
from pytest_osmosis.models.base import ChatRequest, Usage
from pytest_osmosis.text.json_line import dumps

LONGEST = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Keys of a request that bound its answer."""


def size_of(request: ChatRequest) -> Size:
    """The size of a request."""
    bounds = [bound for key in LONGEST if isinstance(bound := request.sampling.get(key), int)]
    text = dumps({"messages": list(request.messages), "tools": list(request.tools)})
    return Size(len(text), min(bounds) if bounds else None)


class Permits:
    """Asks for permits, and says what became of them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def take(self, key: Key, size: Size) -> Permit:
        """Wait for a permit. Where the wait is given up, so is the permit."""
        permit = Permit(next(self._numbers), self._emit)
        granted = self._waiting[permit.number] = asyncio.get_running_loop().create_future()
        ask: AskEvent = {
            "ev": "ask",
            **key.to_json(),
            "id": permit.number,
            "chars": size.chars,
            "max_tokens": size.max_tokens,
        }
        self._emit(ask)
        try:
            await granted
        except BaseException:
            permit.give_back()
            raise
        finally:
            del self._waiting[permit.number]
        return permit

    def granted(self, numbers: Iterable[int]) -> None:
        """The engine gave these; whose wait was given up has said so."""
        for number in numbers:
            granted = self._waiting.get(number)
            if granted is not None and not granted.done():
                granted.set_result(None)


class Permit:
    """Allows one request. What became of it is said once."""

    def __init__(self, number: int, emit: Callable[[AnsweredEvent | UnusedEvent], None]) -> None:
        self.number = number
        self._emit = emit
        self._said = False

    def give_back(self) -> None:
        """The request was not sent."""
        self._say({"ev": "unused", "id": self.number})

    def answered(self, usage: Usage | None) -> None:
        """The request is over; None: nobody counted its tokens."""
        self._say({"ev": "answered", "id": self.number, "usage": usage.to_json() if usage is not None else None})

    def _say(self, event: AnsweredEvent | UnusedEvent) -> None:
        if not self._said:
            self._said = True
            self._emit(event)
