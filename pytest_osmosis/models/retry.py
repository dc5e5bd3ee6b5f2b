"""The retry policy, in one place for every client: send a request until it is answered or no retry helps.

Waits are exponential with jitter, or what the server asked for and a little more, so that those who were sent
away together do not come back together. Time is bounded from outside: an attempt ends with the request's
timeout or with the deadline, whatever the client does; a wait that would outlast the deadline is not begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model

MAX_DOUBLINGS = 32

Within = Callable[[float], AbstractAsyncContextManager[object]]
"""A context that ends what runs inside after so many seconds, and then raises `TimeoutError`."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently: `first_s` doubles with every retry up to `cap_s`."""

    max_retries: int = 4
    first_s: float = 0.5
    cap_s: float = 30.0

    def delay_s(self, error: ModelError, retries: int, rng: Random) -> float:
        """How long to wait after `error`, `retries` retries having been made."""
        if error.retry_after_s:
            return error.retry_after_s * rng.uniform(1.0, 1.1)
        backoff_s = min(self.cap_s, self.first_s * 2.0 ** min(retries, MAX_DOUBLINGS))
        return backoff_s * rng.uniform(0.5, 1.0)


class Answered(NamedTuple):
    """A reply, and how many retries it took."""

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
    heard: Callable[[ModelError | None], None] = lambda error: None,
    within: Within = asyncio.timeout,
) -> Answered:
    """The model's reply, after at most `policy.max_retries` retries.

    Each attempt may take `timeout_s`. `remaining_s` says how much of the rollout's time is left, None where it has no
    deadline. Each wait for a retry is spent inside `waiting(delay)`, where a caller gives back what others may use
    meanwhile. `heard` hears how each attempt ended, `within` bounds its time. Raises the `ModelError` of the last
    attempt, or one that says that the deadline allows no other; its `retries` counts the retries made.
    """
    retries = 0
    error: ModelError | None = None
    while True:
        try:
            time_s = _time_s(timeout_s, remaining_s(), error)
            answered = Answered(await attempt(model, request, time_s, within), retries)
            heard(None)
            return answered
        except ModelError as failed:
            error = failed
        heard(error)
        error.retries = retries
        if not error.retryable or retries >= policy.max_retries:
            raise error
        delay_s = policy.delay_s(error, retries, rng)
        left_s = remaining_s()
        if left_s is not None and delay_s >= left_s:
            raise _too_late(error, delay_s, left_s)
        async with waiting(delay_s):
            await asyncio.sleep(delay_s)
        retries += 1


async def attempt(model: Model, request: ChatRequest, timeout_s: float, within: Within = asyncio.timeout) -> ChatReply:
    """One request that ends within `timeout_s`."""
    try:
        async with within(timeout_s):
            return await model.chat(request)
    except TimeoutError:
        raise ModelError(f"no answer within {timeout_s:.3g} s", retryable=True) from None


def _time_s(timeout_s: float, left_s: float | None, error: ModelError | None) -> float:
    """What one attempt may take of the time that is left; `error` is how the one before ended."""
    if left_s is None or left_s > timeout_s:
        return timeout_s
    if left_s <= 0:
        before = "" if error is None else f"{error}; "
        raise ModelError(f"{before}no time is left for the request")
    return left_s


def _too_late(error: ModelError, delay_s: float, left_s: float) -> ModelError:
    """The error of an attempt whose retry would come after the deadline."""
    if left_s <= 0:
        reason = "no time is left for a retry"
    elif error.retry_after_s:
        reason = f"asked to wait {error.retry_after_s:.10g} s, {left_s:.3g} s are left"
    else:
        reason = f"the next retry would be in {delay_s:.3g} s, {left_s:.3g} s are left"
    late = ModelError(
        f"{error}; {reason}",
        retry_after_s=error.retry_after_s,
        status=error.status,
        systemic=error.systemic,
    )
    late.retries = error.retries
    return late
