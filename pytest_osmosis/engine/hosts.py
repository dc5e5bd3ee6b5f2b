"""The host processes of an eval, from their start to their end. Nothing here knows a run.

`rolling` hosts roll out and score on their event loops, with `batch_size` runs in flight in total; `scorers` run the
functions that block; the `quarantine` host gets, one at a time, the runs that were in flight in a host that died.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pytest_osmosis.engine.host_connection import Connection, EndedBy, Post
from pytest_osmosis.engine.job import Job
from pytest_osmosis.engine.notices import Notices, Waiting
from pytest_osmosis.engine.run_table import Host, HostRole, Share
from pytest_osmosis.engine.throttle import Throttle
from pytest_osmosis.errors import HostError
from pytest_osmosis.host.protocol import Request
from pytest_osmosis.text.numbers import plural

START_S = 300.0
"""A host that has not loaded its code after this long is ended."""
LATE_S = 5.0
"""A host without a place leaves its share to others this long after the first one is ready: it may wait for hours."""
SILENCE_SLACK_S = 10.0
"""A host that is silent for longer than its code may take, and this, is ended: none of its deadlines worked, or it
does not close."""
PROBE_S = 95.0
"""The longest that a probe takes: three tries, a pause, and a look at the date on which the model ends."""
BEHIND_S = 0.5
"""Runs that a host has had for so long without beginning them are given to a host that is idle."""
CLOSE_S = 3.0
"""A host that does not close is ended after this long, and after the time that its code gets at the end."""
GATHER_PART = 6
GATHER_MOST_S = 0.1
GATHER_SOON_S = 0.02
"""A host's messages gather until it has begun a sixth of what it may have in flight, at most for `GATHER_MOST_S`, or
`GATHER_SOON_S` if one run may stop the eval or other hosts must wait. They do not if each request needs a permit. Fewer
and larger reads save a quarter of the CPU time of an eval whose rollouts take 20 ms."""


MAX_BARREN = 3
"""After this many hosts of a role in a row that died before they began anything, no further host is started."""
MOST_LOST, MOST_LOST_EACH = 10, 4
"""The same for hosts that were lost with their machines: this many, or this many for each of the eval's hosts."""


class Most(NamedTuple):
    """The most rollouts and scorings that user code allows at once, None for any number."""

    rollouts: int | None = None
    scorings: int | None = None


class Hosts:
    """All hosts of one eval. `throttle` limits them while servers have no room; with `closing` none is replaced."""

    def __init__(self, job: Job, post: Post, notices: Notices) -> None:
        self.rolling: list[Host] = []
        self.scorers: list[Host] = []
        self.quarantine: Host | None = None
        self.starts = HostStarts(job, post)
        # Each host may always have one run in flight: a host without a slot would hold what it has begun for ever.
        self.n_wanted = min(job.hosts, job.batch_size)
        self.throttle = Throttle(job.batch_size, self.n_wanted)
        self.shares = Shares(job, self)
        self.closing = False
        self._paused_s = 0.0
        self._has_scorers = False
        self._ready_at = math.inf
        self._job = job
        self._clock = job.clock
        self._notices = notices
        self._by_connection: dict[Connection, Host] = {}
        gather_s = GATHER_SOON_S if job.hosts > 1 or job.low_latency else GATHER_MOST_S
        self._gather_most_s = 0.0 if any(job.limits) else gather_s

    def __iter__(self) -> Iterator[Host]:
        return iter(list(self._by_connection.values()))

    def of(self, connection: Connection) -> Host:
        return self._by_connection[connection]

    def start(self) -> None:
        """Start the hosts that roll out, unless they are to end. Raises `HostError` if a process cannot be started."""
        for _ in range(0 if self.closing else self.n_wanted):
            self.rolling.append(self._start("host"))
        self.shares.renew()

    def start_scorers(self) -> None:
        self._has_scorers = True
        for _ in range(self.n_wanted):
            self.add("scorer")

    def grow(self, n_hosts: int) -> None:
        """Start further hosts until there are `n_hosts`, at most `batch_size`. Never ends one.

        If user code limits what happens at once, there are enough: what they have in use could not be shared anew.
        """
        n_more = min(n_hosts, self._job.batch_size) - self.n_wanted
        if n_more <= 0 or self.closing or any(self.shares.most):
            return
        self.n_wanted += n_more
        self.starts.n_hosts = self.n_wanted
        self.throttle.floor = self.n_wanted
        self.shares.renew(settle=True)
        for _ in range(n_more):
            self.add("host")
            if self._has_scorers:
                self.add("scorer")

    def waiting(self) -> Waiting:
        """Count the hosts that roll out and have no place."""
        unplaced = [host.connection for host in self.rolling if host.connection.placed_at is None]
        return Waiting(len(unplaced), len(self.rolling), unplaced[-1].waits_for if unplaced else "")

    def add(self, role: HostRole) -> None:
        """Start a host, unless too many have failed."""
        if self.closing or self.starts.given_up is not None:
            return
        try:
            host = self._start(role)
        except HostError as error:
            self.starts.give_up(str(error))
            return
        match role:
            case "host":
                self.rolling.append(host)
            case "scorer":
                self.scorers.append(host)
            case "quarantine":
                self.quarantine = host
        self.shares.renew()

    def _start(self, role: HostRole) -> Host:
        host = self.starts.start(role, parts_of(self._job.batch_size, self.n_wanted)[0] if role == "host" else 1)
        self._by_connection[host.connection] = host
        return host

    def became_ready(self, host: Host) -> None:
        """Note that a host has loaded its code. A pause for a server holds for it too."""
        host.become_ready()
        if host.late:
            host.late = False
            self.shares.renew(settle=True)
            self.rolling.remove(host)
            self.rolling.append(host)  # others have its share, and maybe in use
        if host.role == "host":
            self._ready_at = min(self._ready_at, self._clock.now())
        left_s = self.throttle.until - self._clock.now()
        if left_s > 0 and host.role != "scorer":
            host.connection.send([{"op": "hold", "wait_s": left_s}])

    def broadcast(self, message: Request) -> None:
        for host in self:
            host.connection.send([message])

    def pace(self, host: Host, n_begun: int) -> None:
        """Adapt how long messages of a host are gathered: it has begun `n_begun` runs since it was last handed some."""
        now = self._clock.now()
        if host.handed_at and self._gather_most_s:
            most_s = self._gather_most_s + host.connection.delay_s
            host.gather_s = min(most_s, (now - host.handed_at) * host.limit / (n_begun * GATHER_PART))
        host.handed_at = now

    def gather(self, *, rolls: bool, scores: bool) -> None:
        """Let messages be gathered while runs are left to hand out (`rolls`) or to score (`scores`), at the pace of the
        host that first needs more, and read the last ones at once."""
        scoring_s = rolling_s = 0.0
        if scores and self._gather_most_s:
            scoring_s = min((host.gather_s for host in self.scorers if host.gather_s), default=0.0)
        if rolls:
            rolling_s = min((host.gather_s for host in self.rolling if host.handed_at), default=0.0)
        of_scorers_s, of_others_s = scoring_s or rolling_s, rolling_s or scoring_s
        for host in self:
            host.connection.gather_s = of_scorers_s if host.role == "scorer" else of_others_s

    def throttled(self, host: Host, wait_s: float) -> None:
        """Pause all hosts for `wait_s`, as a server had no room for a request of `host`; then have fewer in flight."""
        self.throttle.refused(self._clock.now(), wait_s)
        for other in self:
            if other is not host and other.role != "scorer" and not other.retired:
                other.connection.send([{"op": "hold", "wait_s": wait_s}])
        self.shares.renew()

    def look_after(self, probing: Host | None) -> None:
        """End hosts that do not become ready, do not close, or are busy and silent for longer than code may take.

        The pauses for a server do not count: hosts have nothing to say meanwhile.
        """
        now = self._clock.now()
        paused_s = self.throttle.paused_s_before(now)
        for host in self:
            if host.ready and host.role != "scorer":
                host.heard_at = min(now, host.heard_at + paused_s - self._paused_s)
            allowed_s = self._allowed_silence_s(host, host is probing)
            if self._is_late(host, now):
                host.late = True
                self.shares.renew(settle=True)
            placed_at = host.connection.placed_at
            is_silent = placed_at is not None and now - max(host.heard_at, placed_at) > allowed_s
            if is_silent and (host.retired or not host.ready or host is probing or host.is_busy):
                host.ended_for = f"it sent nothing for {allowed_s:.0f} s"
                self._notices.add(f"a process that runs your code was ended: {host.ended_for}")
                host.heard_at = now
                host.connection.kill()
        self._paused_s = paused_s

    def _is_late(self, host: Host, now: float) -> bool:
        if host.ready or host.late or host.role != "host" or host.connection.placed_at is not None:
            return False
        return now - max(host.started_at, self._ready_at) > LATE_S

    def _allowed_silence_s(self, host: Host, probes: bool) -> float:
        setup = self._job.setup
        if host.retired:  # nobody waits for its end
            return SILENCE_SLACK_S + setup.teardown_s
        if not host.ready:
            return START_S
        if host.role == "scorer":
            return setup.grader_timeout_s + SILENCE_SLACK_S
        return max(setup.agent_timeout_s, setup.grader_timeout_s, PROBE_S if probes else 0.0) + SILENCE_SLACK_S

    @property
    def scoring(self) -> list[Host]:
        """The hosts that roll out and may score too."""
        return [host for host in self.rolling if host.ready and host.share.scorings]

    def is_behind(self, host: Host) -> bool:
        """Return True if a host has had runs for a while that it cannot begin before others end."""
        return host.n_rolling >= host.limit and self._clock.now() - host.handed_at > BEHIND_S

    def retire_quarantine(self, host: Host) -> None:
        """Close the quarantine, which has nothing left to do."""
        self.quarantine = None
        host.hand([{"op": "close"}])
        host.retired = True
        self.shares.renew()

    def died(self, connection: Connection, how: str, by: EndedBy) -> Host:
        host = self._by_connection.pop(connection)
        for hosts in (self.rolling, self.scorers):
            if host in hosts:
                hosts.remove(host)
        if host is self.quarantine:
            self.quarantine = None
        self.shares.renew()
        if not (host.begun or host.retired or self.closing):
            self.starts.died_barren(host, how, by, others_work=any(other.ready for other in self.rolling))
        return host

    def kill(self) -> None:
        for host in self:
            host.connection.kill()

    def release(self) -> None:
        """Let all hosts end, and start no further one. A host without a place would get one first, and load code."""
        self.closing = True
        for host in self:
            if host.connection.placed_at is None:
                host.connection.kill()
            else:
                host.connection.send([{"op": "close"}])

    def close(self) -> None:
        self.release()
        left = self._left_after(CLOSE_S + self._job.setup.teardown_s, self)
        for host in left:
            host.connection.kill()
        self._left_after(CLOSE_S, left)

    def _left_after(self, wait_s: float, hosts: Iterable[Host]) -> list[Host]:
        """Wait for the end of hosts, and return those that have not ended after `wait_s`."""
        until = self._clock.now() + wait_s
        return [host for host in hosts if not host.connection.join(max(0.0, until - self._clock.now()))]


class Shares:
    """The shares of the hosts that roll out in what may be in flight.

    `most` limits them for user code, and `in_flight` for the session, once `are_limited` is set.
    """

    def __init__(self, job: Job, hosts: Hosts) -> None:
        self.most = Most()
        self.in_flight = job.batch_size
        self.are_limited = False
        self._settle = False
        self._are_old = False
        self._job = job
        self._hosts = hosts

    def allow(self, most: Most, notices: Notices) -> None:
        """Have no more at once than user code allows."""
        self.most = most
        batch_size = self._hosts.throttle.limit
        if most.rollouts is not None and most.rollouts < batch_size:
            texts = "the workflow's config allows {} at once; without it, {} would be in flight"
            notices.add(texts.format(plural(most.rollouts, "rollout"), batch_size))
        self.renew()

    def limit(self, in_flight: int) -> None:
        """Begin no rollout from now on while `in_flight` others are in flight. Those in flight finish."""
        self.in_flight, self.are_limited, self._settle = in_flight, True, True

    def renew(self, *, settle: bool = False) -> None:
        """Have shares made anew. With `settle`, hosts get more only once others have given it up."""
        self._are_old = True
        self._settle |= settle

    def tell(self) -> None:
        """Tell hosts their shares of the runs that may be in flight, if these change.

        A run in quarantine takes a slot from the newest host, which replaces the one that died. An older host may have
        all its slots in use, so that a lower limit would not hold at once.
        """
        if not (self._are_old or self._settle):
            return
        self._are_old = False
        hosts = sorted(self._hosts.rolling, key=lambda host: host.late)
        self._settle |= any(host.late for host in hosts)
        for host, share in zip(hosts, self._shares(hosts), strict=True):
            if host.share != share:
                host.become(share)

    def _shares(self, hosts: Sequence[Host]) -> list[Share]:
        """Return the shares of the hosts that roll out.

        If user code allows fewer at once than there are hosts, the last hosts get nothing to do: one that may roll out
        must be able to score too.
        """
        n_hosts, ceiling, most = len(hosts), self._hosts.throttle.ceiling, self.most
        n_in_time = n_hosts if any(most) else sum(not host.late for host in hosts) or n_hosts
        n_active = min(n_in_time, *(number for number in most if number is not None), self._hosts.throttle.limit)
        if not n_active:
            return [Share.of(0)] * n_hosts

        def parts(total: int) -> list[int]:
            """Return equal parts, of which a run in quarantine takes a slot from the newest host."""
            result = parts_of(total, n_active)
            result[min(total, n_active) - 1] -= self._hosts.quarantine is not None and total > 0
            return result

        most_rollouts = min(ceiling, most.rollouts or ceiling)
        scorings = parts(most_rollouts)
        limits = self._limits(hosts[:n_active], parts(min(most_rollouts, self.in_flight)))
        begun = [2 * limit for limit in limits]
        if most.rollouts is not None:
            begun = parts(most.rollouts)
            scorings = parts_of(ceiling, n_active)
        if self._job.most_scorings is not None:
            scorings = [self._job.most_scorings] * n_active  # the engine hands out no more in all
        if most.scorings is not None:
            scorings = parts(min(ceiling, most.scorings))
        each = map(Share, limits, begun, scorings)
        return [*each, *[Share.of(0)] * (n_hosts - n_active)]

    def _limits(self, hosts: Sequence[Host], wanted: list[int]) -> list[int]:
        """Return the limits of hosts on their way to those that are `wanted`, so that no more than these begin.

        Once the session has lowered or raised them, or other hosts share in them, hosts that have more are told first.
        No host gets more before each has heard, and has ended what is beyond its own; meanwhile each may have what it
        has, less what is too many in all: a rollout in a slot may wait for one that waits for a slot. If there are
        fewer than hosts, those that have begun some come first.
        """
        n_active, total = len(hosts), sum(wanted)
        if not self._settle or n_active < 2:
            return wanted
        if total < n_active:
            order = sorted(range(n_active), key=lambda index: (not hosts[index].n_in_slots, not hosts[index].n_rolling))
            wanted = [int(index in order[:total]) for index in range(n_active)]
        occupied = [host.occupied for host in hosts]
        if all(has <= share for has, share in zip(occupied, wanted, strict=True)):
            self._settle = total < n_active
            return wanted
        too_many = max(0, sum(occupied) - total)
        return [max(0, min(has - too_many, share)) for has, share in zip(occupied, wanted, strict=True)]

    @property
    def are_full(self) -> bool:
        """True if the session allows no rollout besides those that have begun, or may begin before hosts hear of it."""
        in_use = (host.occupied if self._settle else host.n_in_slots for host in self._hosts.rolling)
        return sum(in_use) >= self.in_flight

    @property
    def most_in_flight(self) -> int:
        """The most rollouts that may be in flight now: those that began under a higher limit may last."""
        hosts, quarantine = self._hosts, self._hosts.quarantine
        if not self.are_limited:
            return self.in_flight
        of_hosts = sum(host.occupied for host in hosts if host.role == "host")
        quarantined = quarantine is not None and quarantine.n_to_roll_out > 0
        return max(self.in_flight, of_hosts + quarantined)


def parts_of(total: int, parts: int) -> list[int]:
    """Return `total` in equal parts; the first ones are larger by one if it does not divide.

    >>> parts_of(7, 3), parts_of(1, 2), parts_of(4, 0)
    ([3, 2, 2], [1, 0], [])
    """
    return [total // parts + (index < total % parts) for index in range(parts)]


class HostStarts:
    """Starts hosts. `given_up` says why no further host is started; hosts that live continue. `n_hosts` are wanted."""

    def __init__(self, job: Job, post: Post) -> None:
        self.given_up: str | None = None
        self._job = job
        self._post = post
        self._n_barren = Counter[HostRole]()
        self.n_hosts = job.hosts
        self._n_lost = 0

    def start(self, role: HostRole, limit: int) -> Host:
        """Start a host. Raises `HostError` if no process can be started."""
        job = self._job
        setup = replace(job.setup, limit=limit, max_limit=job.batch_size)
        if role == "scorer":  # it loads functions, but no agent and nothing that an agent imports
            code = replace(job.setup.code, role="score")
            setup = replace(job.setup, code=code, limit=1, max_limit=1, agent="chat")
            if code.endpoint != "env":  # else the Grader and the environment score there too
                setup = replace(setup, code=replace(code, environment=None), entrypoint=None, grader=None)
        connection = job.spawn(role, setup, environ=job.environ, log=job.host_log, post=self._post)
        return Host(role, connection, Share.of(limit), job.clock.now(), job.clock)

    def has_begun(self, host: Host) -> None:
        host.begun = True
        self._n_barren[host.role] = self._n_lost = 0

    def died_barren(self, host: Host, how: str, by: EndedBy, *, others_work: bool) -> None:
        """Note that a host died before it began anything, and give up after too many in a row.

        While hosts that roll out are ready (`others_work`), one that was lost with its machine does not count: the
        others may be in long rollouts, and begin no further one for hours.
        """
        if by == "machine":
            self._n_lost += host.role == "host" and not others_work
            if self._n_lost >= max(MOST_LOST, MOST_LOST_EACH * self.n_hosts):
                lost = "processes in a row were lost with their machines before they ran any of your code"
                self.give_up(f"{self._n_lost} {lost} ({how})")
            return
        self._n_barren[host.role] += 1
        if self._n_barren[host.role] >= MAX_BARREN:
            log = self._job.host_log
            see = f"; their log is {log}" if log.exists() and log.stat().st_size else ""  # an empty log is not kept
            text = f"{MAX_BARREN} processes in a row ended before they ran any of your code ({how})"
            self.give_up(f"{text if host.ready else start_failure(how)}{see}")

    def give_up(self, why: str) -> None:
        self.given_up = self.given_up or why


def start_failure(how: str) -> str:
    return f"the process ended while it loaded your code ({how})"
