"""Troubles that the demo server can have on request: slow answers, errors, and a limit of requests.

The latency and the failure of a request depend on the seed, on its body and on how often that body came, and not on the
order in which requests arrive. So an eval that runs again, against a server started again, meets the same troubles.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple


class Latency(NamedTuple):
    """The seconds from `least` to `most` that an answer takes."""

    least: float = 0.0
    most: float = 0.0


NO_LATENCY = Latency()


class RequestRate(NamedTuple):
    """A number of requests in a span of seconds."""

    requests: int
    span_s: float


class Fate(NamedTuple):
    """The latency of one request, its failure if it `fails`, and how many `earlier` requests had its body."""

    latency_s: float
    fails: bool
    earlier: int


@dataclass(frozen=True, slots=True)
class Disturbances:
    """The troubles of a server. `error_rate` is the share of requests that fail with `error_status`."""

    latency: Latency = NO_LATENCY
    error_rate: float = 0.0
    error_status: int = 502
    rate_limit: RequestRate | None = None
    seed: int = 0


class Fates:
    """Decides what happens to each request of a server, and counts how often each body came."""

    def __init__(self, disturbances: Disturbances) -> None:
        self._disturbances = disturbances
        self._seen: Counter[bytes] = Counter()

    def of(self, body: bytes) -> Fate:
        """Return what happens to a request with this body, which has arrived once more."""
        digest = blake2b(body, digest_size=16).digest()
        earlier = self._seen[digest]
        self._seen[digest] += 1
        least, most = self._disturbances.latency
        latency_s = least + (most - least) * self._draw("latency", digest, earlier)
        fails = self._draw("error", digest, earlier) < self._disturbances.error_rate
        return Fate(latency_s, fails, earlier)

    def _draw(self, purpose: str, digest: bytes, earlier: int) -> float:
        """Return a number of at least 0 and less than 1."""
        text = f"{purpose}:{self._disturbances.seed}:{earlier}:".encode()
        return int.from_bytes(blake2b(text + digest, digest_size=6).digest(), "big") / 2**48


@dataclass(slots=True)
class RateLimiter:
    """Admits at most so many requests in any span of a rate's length. `now` is a clock in seconds."""

    rate: RequestRate
    now: Callable[[], float]
    _admitted: deque[float] = field(default_factory=deque)

    def wait_s(self) -> float:
        """Admit a request and return 0, or else return the seconds after which one could be admitted."""
        now = self.now()
        while self._admitted and now - self._admitted[0] >= self.rate.span_s:
            self._admitted.popleft()
        if len(self._admitted) < self.rate.requests:
            self._admitted.append(now)
            return 0.0
        return self._admitted[0] + self.rate.span_s - now


_SPANS = {"s": 1.0, "m": 60.0}


def latency(text: str) -> Latency:
    """Return the latency in an argument: seconds, or a range of seconds. Raises `ArgumentTypeError`.

    >>> latency("0.2"), latency("0.2-1.5")
    (Latency(least=0.2, most=0.2), Latency(least=0.2, most=1.5))
    """
    first, dash, last = text.partition("-")
    least = _seconds(first, text)
    most = _seconds(last, text) if dash else least
    if most < least:
        raise ArgumentTypeError(f"the second number of {text} must be at least the first")
    return Latency(least, most)


def _seconds(part: str, text: str) -> float:
    try:
        seconds = float(part)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ArgumentTypeError(f"must be seconds like 0.2, or a range like 0.2-1.5, got {text}")
    return seconds


def rate(text: str) -> RequestRate:
    """Return the rate in an argument: requests per minute, or per second with "/s". Raises `ArgumentTypeError`.

    >>> rate("60"), rate("5/s")
    (RequestRate(requests=60, span_s=60.0), RequestRate(requests=5, span_s=1.0))
    """
    number, slash, span = text.partition("/")
    if not number.isdecimal() or int(number) < 1 or (slash and span not in _SPANS):
        raise ArgumentTypeError(f"must be requests per minute like 60, or per second like 5/s, got {text}")
    return RequestRate(int(number), _SPANS[span or "m"])


def share(text: str) -> float:
    """Return the share in an argument, from 0 to 1. Raises `ArgumentTypeError`."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"must be a share from 0 to 1, like 0.1, got {text}")
    return found


def error_status(text: str) -> int:
    """Return the HTTP status of an error in an argument. Raises `ArgumentTypeError`."""
    if not text.isdecimal() or not 400 <= int(text) <= 599:
        raise ArgumentTypeError(f"must be an HTTP status from 400 to 599, like 502, got {text}")
    return int(text)
