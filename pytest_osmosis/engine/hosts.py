"""The lives of an eval's host processes: spawned, ready, looked after, retired, dead. Nothing here knows a run.

`rolling` hosts roll out and score on their event loops, `batch_size` runs among them; `scorers` run the functions that
block; the `quarantine` host gets, one at a time, what was in flight in a host that died.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_osmosis.engine.host_connection import Line, Post
from pytest_osmosis.engine.job import Job
from pytest_osmosis.engine.notices import Notices
from pytest_osmosis.engine.throttle import Throttle
from pytest_osmosis.errors import HostError
from pytest_osmosis.host.protocol import Request, Setup

HostRole = Literal["host", "quarantine", "scorer"]

START_S = 300.0
"""A host that has not loaded its code after this long is ended."""
SILENCE_SLACK_S = 30.0
"""A host that says nothing for as long as its code may take, and this, is ended: no deadline of its own worked."""
PROBE_S = 61.0
"""A probe takes no longer: two tries, and a pause between them."""
CLOSE_S = 3.0
"""A host that is told to close is ended after this long."""
MAX_BARREN = 3
"""So many hosts of a kind in a row that die before they have begun anything are enough: no more are started."""
GATHER_PART = 6
GATHER_MOST_S = 0.1
GATHER_SOON_S = 0.02
"""What a host says may wait until it has begun so large a part (a sixth) of what it may have in flight, and at the most
so long; less where one may stop the eval by it, or others must wait, and not at all where each request asks first."""


@dataclass(slots=True, eq=False)
class Host:
    """One host process.

    `limit` is how many runs it may have in flight now, `heard_at` when it last had a say, `begun` whether it has begun
    a run or a function, `score_ms` how long a function took of late, `handed_at` when it was handed rollouts last (0.0:
    never). What it says may wait for `gather_s`.
    """

    role: HostRole
    line: Line
    limit: int
    heard_at: float
    ready: bool = False
    begun: bool = False
    retired: bool = False
    score_ms: float = 10.0
    handed_at: float = 0.0
    gather_s: float = 0.0

    def hand(self, requests: Sequence[Request]) -> None:
        """Give it something to do, and its time for it."""
        if requests:
            self.heard_at = time.monotonic()
            self.line.send(requests)


class Hosts:
    """All hosts of one eval. `post` gets what they say, `notices` what a user should know of their lives.

    `given_up` says why no further host can be had; those that live go on.
    """

    def __init__(self, job: Job, post: Post, notices: Notices) -> None:
        self.rolling: list[Host] = []
        self.scorers: list[Host] = []
        self.quarantine: Host | None = None
        self.given_up: str | None = None
        # Each host may always have one in flight: what a host without any had begun would wait for the others' end.
        self.throttle = Throttle(job.batch_size, min(job.hosts, job.batch_size))
        self.closing = False
        self._job = job
        self._post = post
        self._notices = notices
        self._by_line: dict[Line, Host] = {}
        self._barren = Counter[HostRole]()
        gather_s = GATHER_SOON_S if job.hosts > 1 or job.early_stop.low_latency else GATHER_MOST_S
        self._gather_most_s = 0.0 if any(job.limits) else gather_s

    def __iter__(self) -> Iterator[Host]:
        return iter(list(self._by_line.values()))

    def of(self, line: Line) -> Host:
        """The host at the other end of a line that has not died."""
        return self._by_line[line]

    # -- begin -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Spawn those that roll out. `HostError` where a process cannot be had."""
        for _ in range(self._job.hosts):
            self.rolling.append(self._spawn("host"))
        self.relimit()

    def start_scorers(self) -> None:
        """Spawn those that run blocking functions."""
        self._add(self.scorers, "scorer", self._job.hosts)

    def start_quarantine(self) -> None:
        """Spawn the quarantine, which takes a place from the others."""
        self.quarantine = self._respawned("quarantine")
        self.relimit()

    def became_ready(self, host: Host) -> None:
        """It has loaded its code. A server's pause is for it too."""
        host.ready = True
        left_s = self.throttle.until - time.monotonic()
        if left_s > 0 and host.role != "scorer":
            host.hand([{"op": "hold", "wait_s": left_s}])

    def has_begun(self, host: Host) -> None:
        """It has begun a run or a function, so hosts of its kind can work."""
        host.begun = True
        self._barren[host.role] = 0

    # -- while they live ---------------------------------------------------------------------------------

    def broadcast(self, message: Request) -> None:
        """Say the same to all."""
        for host in self:
            host.line.send([message])

    def paced(self, host: Host, begun: int) -> None:
        """`host` is handed rollouts again, as it has begun so many since the last time."""
        now = time.monotonic()
        if host.handed_at:
            host.gather_s = min(self._gather_most_s, (now - host.handed_at) * host.limit / (begun * GATHER_PART))
        host.handed_at = now

    def gather(self, *, busy: bool) -> None:
        """Let what hosts say come in larger pieces while there is more to hand out, and the last of it at once."""
        pace = min((host.gather_s for host in self.rolling if host.handed_at), default=GATHER_SOON_S)
        for host in self:
            host.line.gather_s = min(pace, host.gather_s) if busy else 0.0

    def throttled(self, host: Host, wait_s: float) -> None:
        """A server refused what `host` sent: nobody asks it for `wait_s`, and fewer at once from then on."""
        self.throttle.refused(time.monotonic(), wait_s)
        for other in self:
            if other is not host and other.role != "scorer" and not other.retired:
                other.hand([{"op": "hold", "wait_s": wait_s}])
        self.relimit()

    def look_after(self, busy: Callable[[Host], bool]) -> None:
        """End hosts that do not become ready, do not close, or say nothing though no code may take so long.

        `busy` says whether one has anything to say.
        """
        now = time.monotonic()
        for host in self:
            allowed_s = self._patience_s(host)
            if now - host.heard_at > allowed_s and (host.retired or not host.ready or busy(host)):
                self._notices.add(f"an engine host said nothing for {allowed_s:.0f} s and was ended")
                host.heard_at = now
                host.line.kill()

    def _patience_s(self, host: Host) -> float:
        """How long a host may say nothing while it is busy."""
        setup = self._job.setup
        if host.retired:
            return CLOSE_S
        if not host.ready:
            return START_S
        code_s = setup.grader_timeout_s
        return (code_s if host.role == "scorer" else max(setup.agent_timeout_s, code_s, PROBE_S)) + SILENCE_SLACK_S

    # -- end ---------------------------------------------------------------------------------------------

    def retire_quarantine(self, host: Host) -> None:
        """Close the quarantine, which nothing is left for."""
        self.quarantine = None
        host.hand([{"op": "close"}])
        host.retired = True
        self.relimit()

    def died(self, line: Line, how: str) -> Host:
        """A host is gone: it is taken out. Too many that never began anything, and hosts are given up."""
        host = self._by_line.pop(line)
        if host in self.rolling:
            self.rolling.remove(host)
        if host in self.scorers:
            self.scorers.remove(host)
        if host is self.quarantine:
            self.quarantine = None
        if not (host.begun or host.retired or self.closing):
            self._barren[host.role] += 1
            if self._barren[host.role] >= MAX_BARREN:
                self.give_up(f"{self._barren_failure(host, how)}{self._log_said()}")
        return host

    def replace(self, host: Host) -> None:
        """Spawn another in place of one that died, where one can be had."""
        if host.role == "host":
            self._add(self.rolling, "host", 1)
            self.relimit()
        elif host.role == "scorer":
            self._add(self.scorers, "scorer", 1)

    def give_up(self, why: str) -> None:
        """No further host can be had."""
        self.given_up = self.given_up or why

    def start_failure(self, how: str) -> str:
        """What to say of a host that died before it was ready."""
        return f"an engine host ended while it loaded the code ({how})"

    def _barren_failure(self, host: Host, how: str) -> str:
        if not host.ready:
            return self.start_failure(how)
        return f"{MAX_BARREN} engine hosts in a row ended before they had begun anything ({how})"

    def _log_said(self) -> str:
        """Where to read more, if there is anything: a log that is empty is not kept."""
        log = self._job.host_log
        return f"; their log is {log}" if log.exists() and log.stat().st_size else ""

    def kill(self) -> None:
        """End them all now."""
        for host in self:
            host.line.kill()

    def release(self) -> None:
        """Let them all end; no further one is started."""
        self.closing = True
        self.broadcast({"op": "close"})

    def close(self) -> None:
        """Let them all end, and wait until they have."""
        self.release()
        until = time.monotonic() + CLOSE_S
        for host in self:
            if not host.line.join(max(0.0, until - time.monotonic())):
                host.line.kill()
                host.line.join(CLOSE_S)

    # -- processes ---------------------------------------------------------------------------------------

    def _add(self, hosts: list[Host], role: HostRole, times: int) -> None:
        for _ in range(times):
            host = self._respawned(role)
            if host is not None:
                hosts.append(host)

    def _respawned(self, role: HostRole) -> Host | None:
        """A new host, None where no more can be had."""
        if self.closing or self.given_up is not None:
            return None
        try:
            return self._spawn(role)
        except HostError as error:
            self.give_up(str(error))
            return None

    def _spawn(self, role: HostRole) -> Host:
        job = self._job
        limit = shares(job.batch_size, job.hosts)[0] if role == "host" else 1
        setup = replace(job.setup, limit=limit) if role != "scorer" else _scorers(job.setup)
        line = job.spawn(role, setup, environ=job.environ, log=job.host_log, post=self._post)
        host = self._by_line[line] = Host(role, line, limit, time.monotonic())
        return host

    def relimit(self) -> None:
        """Share out what may be in flight. Idempotent.

        A run in quarantine has the place of one in the newest host, which came for the one that died: whoever was there
        before may have as many in flight as it may, so that less would not be less at once.
        """
        limits = shares(self.throttle.ceiling, len(self.rolling))
        if self.quarantine is not None and limits:
            limits[-1] = max(0, limits[-1] - 1)
        for host, limit in zip(self.rolling, limits, strict=True):
            if host.limit != limit:
                host.limit = limit
                host.hand([{"op": "limit", "limit": limit}])


def _scorers(setup: Setup) -> Setup:
    """A scorer loads the functions and nothing else: no agent, and what that imports."""
    return replace(setup, role="score", limit=1, agent="chat", entrypoint=None, grader=None)


def shares(total: int, parts: int) -> list[int]:
    """`total` in equal parts, the first ones larger by one where it does not divide.

    >>> shares(7, 3), shares(1, 2), shares(4, 0)
    ([3, 2, 2], [1, 0], [])
    """
    return [total // parts + (index < total % parts) for index in range(parts)]


def exit_text(status: int) -> str:
    """An exit status in words.

    >>> exit_text(-9)
    'SIGKILL'
    >>> exit_text(3)
    'exit status 3'
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
