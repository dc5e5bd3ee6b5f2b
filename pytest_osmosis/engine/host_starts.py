"""Host processes and their start, until too many have failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_osmosis.clock import SYSTEM, Clock
from pytest_osmosis.engine.host_connection import Connection, EndedBy, Post
from pytest_osmosis.engine.job import Job
from pytest_osmosis.host.protocol import Request

if TYPE_CHECKING:
    from pytest_osmosis.engine.run_table import RunState

HostRole = Literal["host", "quarantine", "scorer"]

MAX_BARREN = 3
"""After this many hosts of a role in a row that died before they began anything, no further host is started."""
MOST_LOST, MOST_LOST_EACH = 10, 4
"""The same for hosts that were lost with their machines: this many, or this many for each of the eval's hosts."""


class Share(NamedTuple):
    """The numbers of rollouts in flight, of rollouts that have begun, and of scorings in flight, of one host."""

    limit: int
    begun: int
    scorings: int

    @classmethod
    def of(cls, limit: int) -> Share:
        """Return the share of a host that only `batch_size` limits."""
        return cls(limit, 2 * limit, limit)


@dataclass(slots=True, eq=False)
class Host:
    """One host process.

    `share` is what it may have in flight now, `heard_at` the time of its last message or work, by `clock`. It was
    started at `started_at`, and is `late` if it was not ready in time: others have its share. It has `begun` once it
    has begun a run or a function, and the engine may have `ended_for` a reason. `score_ms` is a moving average of how
    long a function takes, `handed_at` the time when it was last handed rollouts (0.0: never). Its messages may be
    gathered for `gather_s`. If it `gives_back`, it was asked for the runs that it has not begun, and has not answered
    yet. `sent_limits` are the numbers of rollouts in flight that it has been told of, from the one that it keeps to the
    last.

    `runs` are those that it rolls out or scores, in the order in which they were handed to it. It has `n_to_roll_out`
    to roll out, of which `n_rolling` have begun, and `n_in_slots` of these hold a slot, as far as it has told.
    """

    role: HostRole
    connection: Connection
    share: Share
    heard_at: float
    clock: Clock = SYSTEM
    ready: bool = False
    late: bool = False
    begun: bool = False
    retired: bool = False
    ended_for: str = ""
    gives_back: bool = False
    score_ms: float = 10.0
    handed_at: float = 0.0
    gather_s: float = 0.0
    started_at: float = field(init=False)
    _n_void: int = 0
    sent_limits: list[int] = field(default_factory=list)
    runs: dict[RunState, None] = field(default_factory=dict)
    n_to_roll_out: int = 0
    n_rolling: int = 0
    n_in_slots: int = 0

    def __post_init__(self) -> None:
        self.started_at = self.heard_at
        self.sent_limits.append(self.share.limit)

    def become(self, share: Share) -> None:
        """Tell it its share from now on."""
        if self.ready and not self.is_busy:  # it may be from now on
            self.heard_at = self.clock.now()
        self.share = share
        self.sent_limits.append(share.limit)
        limits: Request = {"op": "limit", "limit": share.limit, "begun": share.begun, "scorings": share.scorings}
        self.connection.send([limits])

    @property
    def occupied(self) -> int:
        """The slots that rollouts hold, or may before it hears of a lower limit. One that is not ready begins none."""
        return max(*self.sent_limits[self._n_void :], self.n_in_slots) if self.ready else self.n_in_slots

    def become_ready(self) -> None:
        """Note that the host has loaded its code. From now on it keeps the last limit sent to it."""
        self.ready, self._n_void = True, len(self.sent_limits) - 1

    def limited(self) -> None:
        """Note that it keeps the next one of its limits."""
        self.sent_limits.pop(0)
        self._n_void = max(0, self._n_void - 1)

    @property
    def limit(self) -> int:
        """The number of rollouts that it may have in flight."""
        return self.share.limit

    @property
    def is_busy(self) -> bool:
        """True if it must send something sooner or later. One that may begin nothing now must end what it does."""
        if len(self.sent_limits) > 1:
            return True  # it answers each
        if self.limit > 0 or self.role == "scorer":
            return bool(self.runs)
        return self.n_in_slots > 0 or any(self in state.running for state in self.runs)

    def hand(self, requests: list[Request]) -> None:
        """Send requests. The time that the host may be silent begins anew."""
        if requests:
            self.heard_at = self.clock.now()
            self.connection.send(requests)


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
        """Note that hosts of this role can work."""
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
    """Describe the death of a host that was not ready."""
    return f"the process ended while it loaded your code ({how})"
