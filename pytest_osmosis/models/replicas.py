"""A model with several servers, its replicas: each request goes to the one with the fewest requests in flight.

A replica that fails is left out: at once if it cannot be reached or refuses all requests, or after `IN_A_ROW` failures.
After a rest it gets one request again. What a replica failed is sent to another one at once (`retry.chat`), so that an
answer is missing only if no replica gives it. If all are left out, the one that rested longest is asked.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model
from pytest_osmosis.models.json_bodies import given
from pytest_osmosis.models.targets import ModelTarget, Sticky

IN_A_ROW = 3
"""This many failures without an answer in between leave a replica out."""
REST_S, MOST_REST_S = 5.0, 60.0
"""The seconds that a replica rests before it gets a request again; twice as many each further time."""
SHARE_OF_TIMEOUT = 0.9
"""A request that was given up after this share of its time limit counts as a failure of the replica."""
GOLDEN, SILVER = (math.sqrt(5) - 1) / 2, math.sqrt(2) - 1
"""Multiples of these, without their whole parts, are spread evenly, however they are chosen."""
_RUN = re.compile(r"row(\d+)-run(\d+)")


class ReplicaUse(Struct):
    """The requests of one rollout to one replica. `errors` of them failed.

    `left_out` are the times at which one of these failures left the replica out, with the error, and `back` those at
    which one of its answers ended that.
    """

    requests: int = 0
    errors: int = 0
    left_out: list[dict[str, str]] = []
    back: list[str] = []

    def to_json(self) -> Any:
        changes = given({"left_out": self.left_out or None, "back": self.back or None})
        return {"requests": self.requests, "errors": self.errors, **changes}


USES: ContextVar[dict[str, ReplicaUse] | None] = ContextVar("USES", default=None)
"""The counts of the current task's requests, by the name of the replica; None if nobody counts them."""


class Replica(Struct, eq=False):
    """One server, and how it has done. It rests until `out_until`, and `trials` are requests sent after that."""

    name: str
    target: ModelTarget
    client: Model
    in_flight: int = 0
    sent: int = 0
    failures: int = 0
    rests: int = 0
    out_until: float | None = None
    busy_until: float = 0.0
    trials: int = 0


class ReplicatedModel:
    """A `Model` of several servers, for one event loop. `clients` are those of the target's replicas."""

    def __init__(
        self, target: ModelTarget, clients: Sequence[Model], now: Callable[[], float] = time.monotonic
    ) -> None:
        pairs = zip(target.replicas, clients, strict=True)
        self.replicas = [Replica(each.base_url or "", each, client) for each, client in pairs]
        self._sticky = target.sticky
        self._now = now
        self._unreported: list[tuple[str, dict[str, str]]] = []

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request to one replica. If another may answer it, the `ModelError` has `elsewhere`."""
        replica = self._chosen(request)
        uses = USES.get()
        uses = {} if uses is None else uses
        use = uses.setdefault(replica.name, ReplicaUse())
        for name, change in self._unreported:
            uses.setdefault(name, ReplicaUse()).left_out.append(change)
        self._unreported.clear()
        use.requests += 1
        replica.sent += 1
        replica.in_flight += 1
        is_trial = replica.out_until is not None
        replica.trials += is_trial
        begun = self._now()
        try:
            reply = await replica.client.chat(request)
        except ModelError as error:
            use.errors += error.boundary == "provider"
            raise self._failed(replica, request, error, use, is_trial=is_trial) from None
        except asyncio.CancelledError:
            if self._now() - begun >= SHARE_OF_TIMEOUT * replica.target.timeout_s:
                use.errors += 1
                text = f"no answer within {replica.target.timeout_s:g} s"
                self._count_failure(replica, text, use, is_trial=is_trial, rest_s=MOST_REST_S)
            raise
        finally:
            replica.in_flight -= 1
            replica.trials -= is_trial
        self._answered(replica, use)
        return reply

    async def probe(self, probe_one: Callable[[Model], Awaitable[ModelError | None]]) -> ModelError | None:
        """Return the error of a test request to each replica: one that a server gave all requests, or that all met.

        Replicas that cannot be reached are left out, and reported with the next request of a rollout.
        """
        errors = await asyncio.gather(*(probe_one(each.client) for each in self.replicas))
        found = [error for error in errors if error is not None]
        refused = next((error for error in found if _refuses_all(error) and error.status is not None), None)
        if refused is not None:
            return refused
        if len(found) == len(self.replicas):
            found[0].args = ("; ".join(dict.fromkeys(map(str, found))),)
            return found[0]
        for replica, error in zip(self.replicas, errors, strict=True):
            if error is not None and _refuses_all(error):
                use = ReplicaUse()
                self._count_failure(replica, str(error), use, at_once=True)
                self._unreported += [(replica.name, change) for change in use.left_out]
        return None

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.client.close()

    def _chosen(self, request: ChatRequest) -> Replica:
        now = self._now()
        replicas = [each for each in self.replicas if each.name not in request.failed_at] or self.replicas
        rested = [each for each in replicas if _is_rested(each, now)]
        if rested:
            return rested[0]
        able = [each for each in replicas if each.out_until is None]
        if not able:
            return min(replicas, key=lambda each: each.out_until or 0.0)
        free = [each for each in able if each.busy_until <= now] or able
        place = place_of(request.run, self._sticky)
        if place is None:
            return min(free, key=lambda each: (each.in_flight, each.failures, each.sent))
        home, rest = _divided(place, self.replicas)
        return home if home in free else _divided(rest, free)[0]

    def _failed(
        self, replica: Replica, request: ChatRequest, error: ModelError, use: ReplicaUse, *, is_trial: bool
    ) -> ModelError:
        if error.boundary != "provider" or error.systemic == "never" or not (error.retryable or _refuses_all(error)):
            self._answered(replica, use)  # the server is there, whatever it says to this request
            return error
        if error.status == 429:
            replica.busy_until = self._now() + min(error.retry_after_s or 0.0, MOST_REST_S)
        else:
            self._count_failure(replica, str(error), use, is_trial=is_trial, at_once=_refuses_all(error))
        tried = {*request.failed_at, replica.name}
        others = [each for each in self.replicas if each.name not in tried]
        if any(each.out_until is None or _is_rested(each, self._now()) for each in others):
            error.elsewhere = replica.name
            error.systemic = "no"
        return error

    def _count_failure(
        self,
        replica: Replica,
        error: str,
        use: ReplicaUse,
        *,
        is_trial: bool = False,
        at_once: bool = False,
        rest_s: float = REST_S,
    ) -> None:
        """Count a failure, and leave the replica out if that is enough. `is_trial`: it was out when it was asked."""
        replica.failures += 1
        is_out = replica.out_until is not None
        if is_out != is_trial or not (at_once or is_out or replica.failures >= IN_A_ROW):
            return
        if not is_out:
            use.left_out.append({"at": _utc(), "error": error})
        replica.out_until = self._now() + min(rest_s * 2.0**replica.rests, MOST_REST_S)
        replica.rests = min(replica.rests + 1, 10)

    def _answered(self, replica: Replica, use: ReplicaUse) -> None:
        replica.failures = 0
        replica.rests = 0
        if replica.out_until is not None:
            replica.out_until = None
            use.back.append(_utc())


def _is_rested(replica: Replica, now: float) -> bool:
    """Return True if a replica that was left out may get one request."""
    return replica.out_until is not None and replica.out_until <= now and not replica.trials


def _refuses_all(error: ModelError) -> bool:
    return error.systemic in ("always", "until_success")


def place_of(run: str, sticky: Sticky) -> float | None:
    """Return the place of a request between 0 and 1, the same for all that stay together; None if none do."""
    found = None if sticky == "none" else _RUN.match(run)
    if found is None:
        return None
    row, index = map(int, found.groups())
    return (row * GOLDEN + (index * SILVER if sticky == "run" else 0.0)) % 1.0


def _divided(place: float, replicas: Sequence[Replica]) -> tuple[Replica, float]:
    """Return the replica at a place, and the place within its part."""
    scaled = place * len(replicas)
    position = min(int(scaled), len(replicas) - 1)
    return replicas[position], scaled - position


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
