"""A model server that only waits: chat completions after a set latency, with faults on demand.

It speaks just enough HTTP/1.1 over a bare asyncio protocol, so one core answers far more requests than any
client here sends. Lines on standard input control it: a JSON object sets a new `Weather` and resets the counts;
an empty line prints the counts. Times are from CLOCK_MONOTONIC, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

ROLLOUT = re.compile(rb"case (\d+)")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Weather:
    """The server's behaviour: median latency, its log-normal spread, shares of refusals (429) and failures (500)."""

    latency_ms: float = 0.0
    sigma: float = 0.0
    refused: float = 0.0
    failed: float = 0.0
    seed: int = 0


@dataclass(slots=True)
class Counts:
    """Counts of requests. `first_at`: the first rollout's request arrived. `last_at`: the last answer left."""

    n_requests: int = 0
    n_probes: int = 0
    n_answered: int = 0
    n_cases: int = 0
    in_flight: int = 0
    max_in_flight: int = 0
    in_flight_s: float = 0.0
    first_at: float = math.nan
    last_at: float = math.nan


@dataclass(slots=True)
class Server:
    """The weather, the counts since it changed, and the number of requests for each case."""

    weather: Weather = field(default_factory=Weather)
    counts: Counts = field(default_factory=Counts)
    cases: dict[bytes, int] = field(default_factory=dict)
    random: random.Random = field(default_factory=random.Random)

    def reset(self, weather: Weather) -> None:
        self.weather, self.counts, self.cases = weather, Counts(), {}
        self.random = random.Random(weather.seed)

    def report(self) -> dict[str, Any]:
        """Return the counts, and the mean in flight between the first request and the last answer."""
        counts = self.counts
        span_s = counts.last_at - counts.first_at
        mean = counts.in_flight_s / span_s if span_s > 0 else math.nan
        return {**asdict(counts), "n_cases": len(self.cases), "span_s": span_s, "mean_in_flight": mean}

    def began(self, now: float, case: bytes) -> None:
        """Count the arrival of a rollout's request."""
        counts = self.counts
        counts.n_requests += 1
        counts.in_flight += 1
        counts.max_in_flight = max(counts.max_in_flight, counts.in_flight)
        self.cases[case] = self.cases.get(case, 0) + 1
        if counts.n_requests == 1:
            counts.first_at = now

    def ended(self, came_at: float, answered: bool) -> None:
        """Count the answer to a rollout's request."""
        counts, now = self.counts, time.monotonic()
        counts.in_flight -= 1
        counts.n_answered += answered
        counts.in_flight_s += now - came_at
        counts.last_at = now


class Connection(asyncio.Protocol):
    """A client connection, with one request at a time."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle every request that has arrived completely."""
        self._buffer += data
        while (head := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self._buffer, 0, head)
            end = head + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < end:
                return
            body, self._buffer = self._buffer[head + 4 : end], self._buffer[end:]
            self._requested(body)

    def _requested(self, body: bytes) -> None:
        case = ROLLOUT.search(body)
        if case is None:
            self._server.counts.n_probes += 1
            self._transport.write(OK)
            return
        server, weather, now = self._server, self._server.weather, time.monotonic()
        server.began(now, case[1])
        chance = server.random.random()
        latency_s = weather.latency_ms / 1000
        if chance < weather.refused:
            answer, latency_s = REFUSED, 0.0
        elif chance < weather.refused + weather.failed:
            answer = FAILED
        else:
            answer = OK
            latency_s *= math.exp(server.random.gauss(0.0, weather.sigma)) if weather.sigma else 1.0
        self._loop.call_later(latency_s, self._answer, answer, now)

    def _answer(self, answer: bytes, came_at: float) -> None:
        self._server.ended(came_at, answer is OK)
        if not self._transport.is_closing():
            self._transport.write(answer)


def _response(status: str, body: dict[str, Any], *headers: str) -> bytes:
    content = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(content)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content


ANSWER = "The question asks for a number. " * 12 + "42"
OK = _response(
    "200 OK",
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "served",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 120, "completion_tokens": 80, "total_tokens": 200},
    },
)
REFUSED = _response("429 Too Many Requests", {"error": {"message": "slow down"}}, "retry-after: 1")
FAILED = _response("500 Internal Server Error", {"error": {"message": "try again"}})


async def serve() -> None:
    """Serve until standard input ends; print the port as the first line."""
    loop = asyncio.get_running_loop()
    server = Server()
    listening = await loop.create_server(lambda: Connection(server, loop), "127.0.0.1", 0, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip():
            server.reset(Weather(**json.loads(line)))
            print("{}", flush=True)
        else:
            print(json.dumps(server.report()), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
