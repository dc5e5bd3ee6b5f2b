"""Permits for requests under `requests_per_minute` and `tokens_per_minute`, which hold for all hosts together.

A host asks before each request, retries included, and sends it once it has the permit; first come, first served. The
tokens of a request are estimated from earlier requests, and corrected once the server has reported them.

Amounts are taken evenly, and never more than the limit in any minute. Providers count what arrives by the minute, some
by the second, and requests that are sent evenly arrive less evenly. So a minute counts as 61 seconds, and capacity that
was not used for a while is not made up for. Times are of one monotonic clock.

Before its first run, each model gets one small request, a probe: a wrong key or address then costs nothing else.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from operator import itemgetter

from msgspec import Struct, field

from pytest_osmosis.engine.job import Limits
from pytest_osmosis.engine.run_table import Host, RunState
from pytest_osmosis.engine.runs import Runs
from pytest_osmosis.host.protocol import JUDGE, AskEvent, ProbedEvent, Size

CHARS_A_TOKEN = 4.0
FIRST_ANSWER_TOKENS = 500.0
"""Initial estimates, used until the usage of a request is known; `max_tokens` of a request replaces that of answers."""
LOOK_S = 0.01
"""The shortest wait: permits that become free meanwhile are granted together."""
WINDOW_S = 61.0
"""A provider's minute, and a second for requests that are overtaken on their way."""
BURST_S = 0.25
"""Capacity that was not used for up to this long can still be used, as the engine may be late."""


class Charge(Struct, eq=False):
    """An amount charged to a limit at a time. It is `counted` until its minute is over."""

    at: float
    amount: float
    counted: bool = True


class Rate(Struct):
    """At most `per_minute` in any minute. An amount larger than that is let through on its own."""

    per_minute: int
    _charges: deque[Charge] = field(default_factory=deque)
    _sum: float = 0.0
    _next_at: float = float("-inf")

    def free_at(self, now: float, amount: float) -> float:
        """Return when `amount` may be taken, or when to try again."""
        self._forget(now)
        if self._charges and self._sum + amount > self.per_minute:
            return max(self._next_at, self._charges[0].at + WINDOW_S)
        return self._next_at

    def take(self, now: float, amount: float) -> Charge:
        charge = Charge(now, amount)
        self._charges.append(charge)
        self._sum += amount
        self._next_at = max(self._next_at, now - BURST_S) + self._worth_s(amount)
        return charge

    def correct(self, charge: Charge, amount: float) -> None:
        """Replace an estimated amount by the actual one."""
        more, charge.amount = amount - charge.amount, amount
        self._next_at += self._worth_s(more)
        if charge.counted:
            self._sum += more

    def _forget(self, now: float) -> None:
        while self._charges and self._charges[0].at + WINDOW_S <= now:
            charge = self._charges.popleft()
            charge.counted = False
            self._sum -= charge.amount

    def _worth_s(self, amount: float) -> float:
        return amount * WINDOW_S / self.per_minute


class Estimate(Struct):
    """Estimates the tokens of a request from those of earlier requests."""

    _answers: int = 0
    _chars: int = 0
    _input_tokens: int = 0
    _output_tokens: int = 0

    def tokens(self, size: Size) -> int:
        """Return the tokens of the text and of an answer of average length."""
        if not self._answers:
            answer = FIRST_ANSWER_TOKENS if size.max_tokens is None else float(size.max_tokens)
            return math.ceil(size.chars / CHARS_A_TOKEN + answer)
        answer = self._output_tokens / self._answers
        if size.max_tokens is not None:
            answer = min(answer, size.max_tokens)
        return math.ceil(size.chars * self._input_tokens / self._chars + answer)

    def saw(self, size: Size, usage: Mapping[str, int]) -> None:
        self._answers += 1
        self._chars += max(1, size.chars)
        self._input_tokens += usage["input_tokens"]
        self._output_tokens += usage["output_tokens"]


class PermitAsk(Struct, eq=False):
    """A request that waits for its permit, or has it and no answer yet. `state` is None if its run is over."""

    host: Host
    number: int
    size: Size
    state: RunState | None
    charges: tuple[Charge, ...] = ()


class Permits(Struct):
    """All permits of an eval for one kind of requests: of rollouts, or of judges (`prefix` "judge.").

    `held_s` is how long each limit held back requests, `held_by` the limit that does now.
    """

    limits: Limits
    prefix: str = ""
    held_s: dict[str, float] = {}
    held_by: str | None = None
    _rates: dict[str, Rate] = {}
    _estimate: Estimate = field(default_factory=Estimate)
    _waiting: deque[PermitAsk] = field(default_factory=deque)
    _granted: dict[tuple[Host, int], PermitAsk] = {}
    _looked_at: float = 0.0
    _next_at: float = 0.0

    def __post_init__(self) -> None:
        limits = self.limits._asdict().items()
        self._rates = {name: Rate(limit) for name, limit in limits if limit is not None}
        self.held_s = {f"{self.prefix}{name}": 0.0 for name in self._rates}

    def ask(self, host: Host, event: AskEvent, state: RunState | None) -> None:
        if state is not None:
            state.held += 1
        self._waiting.append(PermitAsk(host, event["id"], Size(event["chars"], event["max_tokens"]), state))

    def probed(self, now: float) -> None:
        """Count a probe. It needs no permit, because it is the first request."""
        self._take(now, Size(2, 16))

    def grant(self, now: float, not_before: float) -> None:
        """Send the permits that are due, none before `not_before`. A host that waits for one is not silent."""
        if self.held_by is not None:
            self.held_s[self.held_by] += now - self._looked_at
        self.held_by, self._looked_at = None, now
        due: dict[Host, list[int]] = {}
        while self._waiting and now >= not_before:
            ask = self._waiting[0]
            free = ((rate.free_at(now, amount), name) for name, rate, amount in self._amounts(ask.size))
            free_at, name = max(free, key=itemgetter(0))
            if free_at > now:
                self.held_by, self._next_at = f"{self.prefix}{name}", free_at
                break
            self._withdraw([ask])
            ask.charges = self._take(now, ask.size)
            self._granted[ask.host, ask.number] = ask
            due.setdefault(ask.host, []).append(ask.number)
        for host, numbers in due.items():
            host.hand([{"op": "permit", "ids": numbers}])
        for ask in self._waiting:
            ask.host.heard_at = now

    def wait_s(self, now: float, most_s: float) -> float:
        """Return for how long no permit can be granted, at most `most_s`."""
        return most_s if self.held_by is None else min(most_s, max(LOOK_S, self._next_at - now))

    def answered(self, host: Host, number: int, usage: Mapping[str, int] | None) -> None:
        """Correct the estimate for a request that is over, if its usage is known."""
        ask = self._granted.pop((host, number), None)
        if ask is not None and usage is not None:
            self._estimate.saw(ask.size, usage)
            self._correct(ask, tokens=usage["input_tokens"] + usage["output_tokens"])

    def unused(self, host: Host, number: int) -> None:
        """Take back the permit of a request that will not be sent."""
        ask = self._granted.pop((host, number), None)
        if ask is not None:
            self._correct(ask, requests=0, tokens=0)
            return
        self._withdraw([each for each in self._waiting if each.host is host and each.number == number])

    def died(self, host: Host) -> None:
        """Forget the requests of a dead host; those that it had sent count."""
        self._withdraw([ask for ask in self._waiting if ask.host is host])
        self._granted = {key: ask for key, ask in self._granted.items() if ask.host is not host}

    def _withdraw(self, asks: Iterable[PermitAsk]) -> None:
        for ask in asks:
            self._waiting.remove(ask)
            if ask.state is not None:
                ask.state.held -= 1

    def _amounts(self, size: Size) -> list[tuple[str, Rate, float]]:
        amounts = {"requests_per_minute": 1.0, "tokens_per_minute": float(self._estimate.tokens(size))}
        return [(name, rate, amounts[name]) for name, rate in self._rates.items()]

    def _take(self, now: float, size: Size) -> tuple[Charge, ...]:
        return tuple(rate.take(now, amount) for _, rate, amount in self._amounts(size))

    def _correct(self, ask: PermitAsk, **amounts: float) -> None:
        for (name, rate), charge in zip(self._rates.items(), ask.charges, strict=True):
            amount = amounts.get(name.partition("_")[0])
            if amount is not None:
                rate.correct(charge, amount)


class Probing:
    """Lets one host probe the models. Runs may begin once it `is_over`; `host` is the host that probes now."""

    def __init__(self, runs: Runs, permits: Permits, judge_permits: Permits) -> None:
        self.is_over = False
        self.host: Host | None = None
        self._left: list[str] = []
        self._runs = runs
        self._permits = permits
        self._judge_permits = judge_permits

    def begin(self) -> None:
        """Probe the models, as soon as a host is ready. Ask none if no run will begin."""
        self._left = [] if self._runs.stopped is not None else list(self._runs.job.probes)
        self.is_over = not self._left
        self.go_on()

    def go_on(self) -> None:
        """Let the first host that is ready probe, if that is needed and no host does."""
        ready = [host for host in self._runs.hosts.rolling if host.ready]
        if not self._left or self.host is not None or not ready:
            return
        self.host = ready[0]
        for tag in self._left:
            (self._judge_permits if tag == JUDGE else self._permits).probed(self._runs.job.clock.now())
        self.host.hand([{"op": "probe", "model_tag": str(tag)} for tag in self._left])

    def answered(self, event: ProbedEvent) -> None:
        """Stop the eval, or its baseline, if the probe met what every request will meet."""
        tag, error = event["model_tag"], event["error"]
        if tag not in self._left:
            return  # the host that died meanwhile had sent it
        self._left.remove(tag)
        if error is not None and event["is_systemic"]:
            self._runs.stop_model(tag, f"the test request failed: {error}")
        elif error is not None:
            self._runs.probe_failed(tag, error)
        if not self._left:
            self.host, self.is_over = None, True
