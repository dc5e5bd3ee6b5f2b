"""The way of a request to its answer: with retries, unless its model denies all.

Waits grow exponentially with jitter. A wait that the server asks for is extended by up to 10%, so that requests refused
together are not sent again together. A request ends at its timeout or at the rollout's deadline, whatever the client
does. No wait begins that would end after the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model

T = TypeVar("T")
MAX_DOUBLINGS = 32

Within = Callable[[float], AbstractAsyncContextManager[object]]
"""A context that cancels its body after a number of seconds and raises `TimeoutError`."""


class RetryPolicy(Struct, frozen=True):
    """The number of retries, and the wait before each: `first_s` doubles with every retry, up to `cap_s`."""

    max_retries: int = 4
    first_s: float = 0.5
    cap_s: float = 30.0

    def delay_s(self, error: ModelError, retries: int, rng: Random) -> float:
        """Return the wait after `error` and `retries` retries."""
        if error.retry_after_s:
            return error.retry_after_s * rng.uniform(1.0, 1.1)
        backoff_s = min(self.cap_s, self.first_s * 2.0 ** min(retries, MAX_DOUBLINGS))
        return backoff_s * rng.uniform(0.5, 1.0)


async def _at_once() -> None:
    """Wait for nothing."""


class Answered(NamedTuple):
    reply: ChatReply
    retries: int


async def chat(
    model: Model,
    request: ChatRequest,
    *,
    timeout_s: float,
    policy: RetryPolicy,
    remaining_s: Callable[[], float | None],
    waiting: Callable[[float], AbstractAsyncContextManager[None]],
    rng: Random,
    on_result: Callable[[ModelError | None], None] = lambda error: None,
    within: Within = asyncio.timeout,
    moved: Callable[[], Awaitable[None]] = _at_once,
) -> Answered:
    """Return the model's reply, after at most `policy.max_retries` retries.

    Each request may take `timeout_s`, enforced by `within`. `remaining_s` returns the rest of the rollout's time, or
    None without a deadline. Each wait happens inside `waiting(delay)`, so that the caller can lend its slot to others.
    `on_result` is called with the error of each request, or None. A request that fails at one replica of the
    model goes to another as soon as `moved` returns; that is no retry. Raises the `ModelError` of the last request, or
    one that says that the deadline allows no retry. Its `retries` counts the retries.
    """
    retries = 0
    error: ModelError | None = None
    while True:
        try:
            time_s = _time_s(timeout_s, remaining_s(), error)
            answered = Answered(await send(model, request, time_s, within), retries)
            on_result(None)
            return answered
        except ModelError as failed:
            error = failed
        if error.elsewhere is not None:
            request = replace(request, failed_at=(*request.failed_at, error.elsewhere))
            await moved()
            continue
        request = replace(request, failed_at=()) if request.failed_at else request
        on_result(error)
        if not error.retryable or retries >= policy.max_retries:
            raise _counted(error, retries)
        delay_s = policy.delay_s(error, retries, rng)
        left_s = remaining_s()
        if left_s is not None and delay_s >= left_s:
            raise _counted(_too_late(error, delay_s, left_s), retries)
        async with waiting(delay_s):
            await asyncio.sleep(delay_s)
        retries += 1


async def send(model: Model, request: ChatRequest, timeout_s: float, within: Within = asyncio.timeout) -> ChatReply:
    """Send one request. Raises a retryable `ModelError` if it takes longer than `timeout_s`."""
    try:
        async with within(timeout_s):
            return await model.chat(request)
    except ModelError as error:
        error.__traceback__ = error.__context__ = None  # both would keep the body of the answer
        raise
    except TimeoutError:
        raise ModelError(f"no answer within {timeout_s:.3g} s", retryable=True) from None


def _time_s(timeout_s: float, left_s: float | None, error: ModelError | None) -> float:
    """Return the time that one request may take. `error` is that of the request before."""
    if left_s is None or left_s > timeout_s:
        return timeout_s
    if left_s <= 0:
        before = "" if error is None else f"{error}; "
        raise ModelError(f"{before}no time is left for the request")
    return left_s


def _too_late(error: ModelError, delay_s: float, left_s: float) -> ModelError:
    """Return `error`, with the reason why its retry would come after the deadline."""
    if left_s <= 0:
        reason = "no time is left for a retry"
    elif error.retry_after_s:
        reason = f"asked to wait {error.retry_after_s:.10g} s, {left_s:.3g} s are left"
    else:
        reason = f"the next retry would be in {delay_s:.3g} s, {left_s:.3g} s are left"
    return ModelError(
        f"{error}; {reason}", retry_after_s=error.retry_after_s, status=error.status, systemic=error.systemic
    )


def _counted(error: ModelError, retries: int) -> ModelError:
    """Return the error of the last of several tries, which says how many there were."""
    if retries:
        error.args = (f"{error} ({retries + 1} tries)",)
    error.retries = retries
    return error


class DeniableModel:
    """A model that gets no further request once one has met an error that every other would meet too: a wrong key.

    `on_denied` is called with that error. `error` is its text, or that of another host's. A denial of `other`, the same
    model in another event loop, holds too.
    """

    def __init__(
        self, model: Model, on_denied: Callable[[str], object] = lambda error: None, other: DeniableModel | None = None
    ) -> None:
        self.error: str | None = None
        self._model = model
        self._on_denied = on_denied
        self._other = other

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.raise_if_denied()
        try:
            return await self._model.chat(request)
        except ModelError as error:
            if error.systemic == "always":
                self.deny(str(error))
            raise

    def raise_if_denied(self) -> None:
        """Raise `ModelError` if the model denies every request."""
        if self._other is not None:
            self._other.raise_if_denied()
        if self.error is not None:
            raise ModelError(self.error, systemic="always")

    def deny(self, error: str) -> None:
        """Send no further request: the model has denied one with this error."""
        if self.error is None:
            self.error = error
            self._on_denied(error)

    async def close(self) -> None:
        await self._model.close()
