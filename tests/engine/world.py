"""Simulated hosts: at the other end of the protocol is a seeded choice of what a host may do next.

`World` is the engine's clock. Whenever the engine waits for a message, hosts and the user make moves until there is
one: a host begins a run, ends it, scores it, falls silent, or dies with events that it had not written. So a
seed is one history, which depends neither on real time nor on threads.

`World` checks at each move what must hold (`violations`): which host gets which run, and how many at once.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

from pytest_osmosis.datasets import Dataset, Row
from pytest_osmosis.engine.engine import Close, Engine, EngineMessage
from pytest_osmosis.engine.host_connection import Died, EndedBy, Heard, HostEnviron, Post
from pytest_osmosis.engine.job import Job
from pytest_osmosis.engine.run_table import Host, RunState, RunTable, Stage
from pytest_osmosis.errors import DatasetError, HostError, Problem
from pytest_osmosis.host.protocol import HostCode, Key, Request, Setup
from pytest_osmosis.record.journal import events_from
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Ledger
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, kind_of


def miscounts(table: RunTable, hosts: Iterable[Host]) -> Iterator[str]:
    """Yield each count of a table, and of its hosts, that is wrong."""
    states, tally = list(table.states.values()), table.tally
    to_roll_out = [state for state in states if not state.is_rolled_out]
    rolling = [state for state in states if state.stage is Stage.ROLLING]
    waiting = Counter("retrying" if each.retrying else "held" if each.held else "in flight" for each in rolling)
    counts: dict[str, tuple[object, object]] = {
        "to roll out": (tally.n_to_roll_out, len(to_roll_out)),
        "not begun": (tally.n_unbegun, sum(not state.is_begun for state in states)),
        "handed out": (tally.n_handed_out, sum(each.host is not None and not each.is_begun for each in states)),
        "stored": (tally.n_stored, sum(state.stored for state in states)),
        "unscored": (tally.n_unscored, sum(state.is_rolled_out and not state.waits for state in states)),
        "retrying": (tally.n_retrying, waiting["retrying"]),
        "held": (tally.n_held, waiting["held"]),
        "in flight": (tally.n_in_flight, waiting["in flight"]),
    }
    for host in hosts:
        own = [state for state in to_roll_out if state.host is host]
        counts |= {
            f"of {host.role} {id(host)}": (set(host.runs), of(host, states)),
            f"to roll out in {id(host)}": (host.n_to_roll_out, len(own)),
            f"rolling in {id(host)}": (host.n_rolling, sum(state.stage is Stage.ROLLING for state in own)),
            f"in slots of {id(host)}": (
                host.n_in_slots,
                sum(state.stage is Stage.ROLLING and not state.retrying for state in own),
            ),
        }
    for name, (counted, real) in counts.items():
        if counted != real:
            yield f"{counted} runs {name} are counted, and there are {real}"


def of(host: Host, states: Iterable[RunState]) -> set[RunState]:
    """Return the runs that a host rolls out or scores."""
    return {state for state in states if host in (state.host, state.scorer)}


class StoredNow:
    """The journal as a process finds it that goes on after the engine was killed now."""

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger()
        self._path = path
        self._n_bytes = 0
        self._ended: set[Key] = set()

    def miscount(self, begun: Container[Key], n_seen: int, n_handed_out: float) -> Iterator[str]:
        """Yield the number of lost rollouts if it is wrong: the server saw `n_seen` of those that were handed out."""
        size = self._path.stat().st_size
        new = events_from(self._path, self._n_bytes, 1) if size > self._n_bytes else ()
        for event, self._n_bytes in new:
            self.ledger.apply(event)
            if event["ev"] == "rollout" and Key.of(event) in begun:
                self._ended.add(Key.of(event))
        n_ended, said = len(self._ended), self.ledger.most_lost
        if not n_seen - n_ended <= said <= n_handed_out - n_ended:
            yield f"up to {said} rollouts are lost, of {n_handed_out}: {n_seen} were seen, and {n_ended} are stored"


USAGE = {"input_tokens": 5, "output_tokens": 2}
MOST_IDLE = 3000
"""After this many turns in a row without a possible move, the eval hangs."""

Move = Callable[[], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Climate:
    """The probabilities of failures at each move of a host, and the limits of its code.

    So many `machines` are lost, with all hosts that are on them. A share of the hosts `waits` for a place, and a share
    of those after the first loads code that was `saved` meanwhile.
    """

    scorers: tuple[str, ...] = ("sync",)
    sync: tuple[str, ...] = ("sync",)
    grouped: tuple[str, ...] = ()
    permits: bool = False
    deaths: int = 0
    machines: int = 0
    waits: float = 0.0
    fails: float = 0.0
    denies: float = 0.0
    retries: float = 0.0
    throttles: float = 0.0
    stalls: float = 0.0
    silences: float = 0.0
    breaks: float = 0.0
    removes: float = 0.0
    bad_rows: frozenset[int] = frozenset()
    max_rollouts: int | None = None
    max_scorings: int | None = None
    unloadable: float = 0.0
    unspawnable: float = 0.0
    doomed: float = 0.0
    saved: float = 0.0


class Rows:
    """A dataset, some of whose rows cannot be read."""

    def __init__(self, bad: frozenset[int]) -> None:
        self._bad = bad

    def open(self) -> BytesIO:
        return BytesIO()

    def read(self, file: BytesIO, row: int) -> Row:
        if row in self._bad:
            raise DatasetError([Problem("rows.jsonl", "has changed")])
        return Row(row, [{"role": "user", "content": f"row {row}"}], "42", {}, row + 1)

    def line(self, row: int) -> int:
        return row + 1

    def row(self, row: int) -> Row:
        return self.read(BytesIO(), row)


def job_in(folder: Path, bad: Iterable[int] = (), **fields: Any) -> Job:
    """Return the job of an engine with files in a folder, over rows some of which cannot be read."""
    made: dict[str, Any] = {
        "setup": Setup(HostCode("roll", str(folder), (), {"api_key_env": None, "headers": {}})),
        "dataset": cast(Dataset, Rows(frozenset(bad))),
        "pass_rule": PassRule(()),
        "describe": lambda record, pass_rule, transcript: Outcome(kind_of(record, pass_rule)),
        "environ": HostEnviron({}),
        "host_log": folder / "host.log",
        "stop_request": folder / "stop",
        "probes": (),
    }
    return Job(**{**made, **fields})


@dataclass(slots=True)
class Rollout:
    """A rollout that a host has begun. `at` is "code", "permit", "open" or "retry"."""

    key: Key
    requests_left: int
    at: str = "code"
    permit: int | None = None
    permitted: bool = False


@dataclass(slots=True)
class Scoring:
    """A request to score a run, and the `others` of its group. `name` is the function that runs now."""

    key: Key
    names: list[str]
    name: str | None = None
    held: bool = False
    others: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        return (self.key, *self.others)


class World:
    """The clock of one engine, whose hosts and user make moves in `wait`."""

    def __init__(self, seed: int, climate: Climate, batch_size: int) -> None:
        self.chance = random.Random(seed)
        self.climate = climate
        self.batch_size = batch_size
        self.time = 1000.0
        self.hosts: list[FakeHost] = []
        self.plan: deque[Move] = deque()
        self.violations: list[str] = []
        self.begun: dict[RunId, list[FakeHost]] = {}
        self.written: dict[Key, Mapping[str, Any]] = {}
        self.n_reports = Counter[RunId]()
        self.submitted: set[RunId] = set()
        self.attempts: set[Key] = set()
        self.n_handed_out = 0
        self.n_given_back = 0
        self.n_told_given_back = 0
        self.deaths_left = climate.deaths
        self.machines_left = climate.machines
        self.is_loaded = False
        self.ended = False
        self.hung = False
        self._idle = 0
        self.engine: Engine
        self.stored: StoredNow | None = None

    # -- the clock ------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def wait(self, inbox: SimpleQueue[T], timeout_s: float) -> T:
        """Return the next message, after some moves."""
        self.violations += miscounts(self.engine.loop.table, self.engine.loop.hosts)
        if inbox.empty():  # the engine has heard of all
            self.n_given_back = self.n_told_given_back
        self.might_be_killed()
        for _ in range(self.chance.choice((0, 0, 1, 2, 5, 10))):
            self._move()
        while inbox.empty():
            if not self._move():
                self._idle += 1
                self.time += 1.0
                if self._idle > MOST_IDLE and not self.hung:
                    self.hung = True
                    self.put(Close(0.0))
                raise Empty
            if self.chance.random() < 0.05:
                self.time += timeout_s
                raise Empty
        return inbox.get_nowait()

    def put(self, message: EngineMessage) -> None:
        self.engine.loop.inbox.put(message)

    # -- moves ---------------------------------------------------------------------------------------------

    def _move(self) -> bool:
        """Let a host or the user make one move; return False if none can."""
        if self.plan and self.chance.random() < 0.08:
            self.plan.popleft()()
            return True
        moves = [move for host in self.hosts if not host.dead for move in host.moves()]
        if moves:
            self.chance.choice(moves)()
            self._idle = 0
            self.time += 0.001
            return True
        if self.plan:
            self.plan.popleft()()
            return True
        if not self.ended and self.submitted and self.n_reports.keys() >= self.submitted:
            self.close(0.0)
            return True
        return False

    def do_nothing(self) -> None:
        """Let others move, as the user."""

    def close(self, grace_s: float) -> None:
        self.ended = True
        self.put(Close(grace_s))

    def spawn(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> FakeHost:
        if self.hosts and self.chance.random() < self.climate.unspawnable:
            raise HostError("no process for your code can be started: no memory")
        host = FakeHost(self, name, setup, post)
        self.hosts.append(host)
        if self.chance.random() < self.climate.waits:
            host.placed_at = None
        return host

    # -- invariants ----------------------------------------------------------------------------------------

    def handed(self, host: FakeHost, key: Key) -> None:
        self.n_handed_out += 1
        self.might_be_killed(begins_all=True)
        record = self.engine.ledger.records.get(key.run)
        begun = self.begun.get(key.run, [])
        n_lost = sum(other.lost for other in begun)
        is_suspect = n_lost < len(begun) or n_lost > 1
        elsewhere = [other for other in self.hosts if other is not host and not other.dead and other.has(key.run)]
        stopped = self.engine.stopped or (key.run.is_baseline and self.engine.baseline_stopped)
        errors = {
            "its rollout is in the journal": record is not None and record.rolled,
            "no further run may begin": stopped,
            "another host has it": elsewhere,
            "it was begun too often": len(begun) - n_lost > 1 or n_lost > 2,
            "it was begun in a host that lives": any(not other.dead for other in begun),
            "it may end hosts, and this is no quarantine": is_suspect and host.name != "quarantine",
            "this is another attempt": key.attempt != len(begun) + 1,
        }
        self.violations += [
            f"{key} is handed to {host.name}, though {error}" for error, holds in errors.items() if holds
        ]

    def might_be_killed(self, *, begins_all: bool = False) -> None:
        """Check what the journal would say if the engine were killed now, and hosts began all runs that they have."""
        if self.stored is not None:
            n_begun, n_left = sum(map(len, self.begun.values())), self.n_handed_out - self.n_told_given_back
            n_seen, most = (n_left, math.inf) if begins_all else (n_begun, self.n_handed_out - self.n_given_back)
            self.violations += self.stored.miscount(self.attempts, n_seen, most)

    def grouped(self, keys: list[Key]) -> None:
        """Check a group: it has all runs of its row that ended well, and no other is left."""
        n, run = self.engine.job.n, keys[0].run
        if len({key.run.row for key in keys}) > 1 or len({key.run for key in keys}) < len(keys):
            self.violations.append(f"{keys} are no group")
        for member in (RunId(run.row, index, run.model) for index in range(n)):
            record = self.engine.ledger.records.get(member)
            failed = record is not None and record.boundary is not None
            if (record is None or not record.rolled or failed) == (member in {key.run for key in keys}):
                self.violations.append(f"{member} is wrong in the group {keys}: {record}")
            if record is None or not record.rolled:
                self.violations.append(f"the group {keys} is scored before {member} is rolled out")

    def begins(self, host: FakeHost, key: Key) -> None:
        """Check a rollout that a host begins: from here on it costs money."""
        self.begun.setdefault(key.run, []).append(host)
        self.attempts.add(key)
        self.might_be_killed()
        in_flight = sum(host.held for host in self.hosts if not (host.dead or host.killed))
        if in_flight > self.engine.most_in_flight:
            self.violations.append(f"{in_flight} in flight of {self.engine.most_in_flight}")
        hosts, shares = self.engine.loop.hosts, self.engine.loop.hosts.shares
        if (
            host.name == "host"
            and in_flight > shares.in_flight
            and all(len(each.sent_limits) == 1 for each in hosts.rolling)
        ):
            self.violations.append(f"{in_flight} in flight, and every host knows that {shares.in_flight} may be")
        if in_flight > self.batch_size:
            self.violations.append(f"{in_flight} in flight of {self.batch_size}")
        begun = sum(len(host.rollouts) for host in self.living())
        if begun > (self.climate.max_rollouts or begun):
            self.violations.append(f"{begun} begun of {self.climate.max_rollouts}")
        if self.engine.stopped and not host.is_sent("drop"):
            self.violations.append(f"{key} begins after a stop that {host.name} has not heard of")

    def scores(self) -> None:
        held = sum(host.n_scoring for host in self.living())
        if held > (self.climate.max_scorings or held):
            self.violations.append(f"{held} scorings at once of {self.climate.max_scorings}")

    def living(self) -> Iterator[FakeHost]:
        """Yield the hosts that live and roll out."""
        return (host for host in self.hosts if not (host.dead or host.killed or host.name == "scorer"))

    def lose_machine(self, machine: int) -> None:
        self.machines_left -= 1
        for host in self.hosts:
            if host.machine == machine and host.placed_at is not None and not host.dead:
                host.lost = True
                host.die(f"machine {machine} was lost", by="machine")

    def truth(self, run: RunId, name: str) -> tuple[str, float]:
        """Return the result of a function for a run: "score" and its value, "error", or "removed"."""
        chance = random.Random(f"{run} {name}")
        if chance.random() < self.climate.removes:
            return "removed", 0.0
        return ("error", 0.0) if chance.random() < self.climate.breaks else ("score", float(chance.random() < 0.5))


class FakeHost:
    """A simulated host, and the connection to it: it keeps its requests, and may make `moves`."""

    def __init__(self, world: World, name: str, setup: Setup, post: Post) -> None:
        self.name = name
        self.gather_s = 0.0
        self.delay_s = 0.0
        self.placed_at: float | None = 0.0
        self.waits_for = ""
        self.machine = world.chance.randint(0, 2)
        self.lost = False
        self.ready = self.dead = self.killed = self.frozen = self.closing = self.paused = self.doomed = False
        self.has_other_code = False
        self.limit = setup.limit
        self.max_begun = 2 * setup.limit
        self.max_scorings = setup.limit
        self.held = 0
        self.n_unbegun = 0
        self.rollouts: dict[Key, Rollout] = {}
        self._world = world
        self._chance = world.chance
        self._setup = setup
        self._post = post
        self._requests: deque[Request] = deque()
        self._unwritten: list[Any] = []
        self._waiting: deque[Key] = deque()
        self._denied: set[str] = set()
        self._scorings: list[Scoring] = []
        self._probes: list[str] = []
        self._held_until = 0.0
        self._numbers = 0

    # -- connection -----------------------------------------------------------------------------------------------

    def send(self, messages: Iterable[Request]) -> None:
        for message in messages:
            if message["op"] == "run":
                self._world.handed(self, Key.of(message))
                self.n_unbegun += 1
            if message["op"] == "score_group":
                self._world.grouped([Key.of(run) for run in message["runs"]])
            if message["op"] in ("run", "probe", "score", "score_group", "permit") and self._world.engine.loop.paused:
                self._world.violations.append(f"{self.name} gets {message['op']} in a pause")
            if self.has_other_code and message["op"] in ("run", "score", "score_group"):
                self._world.violations.append(f"{self.name} gets {message['op']} with other code")
            if not self.dead:
                self._requests.append(message)
        if self.dead and not self.lost:
            self._give_back(self.n_unbegun)

    def kill(self) -> None:
        self.killed = True

    def join(self, timeout_s: float) -> bool:
        for _ in range(3):
            if not self.dead and (moves := list(self.moves())):
                self._chance.choice(moves)()
        if not self.dead and (self.killed or self._chance.random() < 0.9):
            self.die("exit status 0")
        return self.dead

    def last_words(self) -> str:
        return ""

    def has(self, run: RunId) -> bool:
        """Return True if it has a request to roll out the run, and has not finished."""
        keys = [*self._waiting, *self.rollouts, *(Key.of(each) for each in self._requests if each["op"] == "run")]
        return any(key.run == run for key in keys)

    def is_sent(self, op: str) -> bool:
        """Return True if it has such a request, and has not read it yet."""
        return any(message["op"] == op for message in self._requests)

    # -- the process ---------------------------------------------------------------------------------------

    def die(self, how: str, by: EndedBy = "host") -> None:
        """End, with or without the events that were not written yet."""
        if self._chance.random() < 0.5:
            self._flush()
        self.dead = True
        if by == "host":
            self._give_back(self.n_unbegun)
        self._post(Died(self, how, by))

    def _give_back(self, n: int) -> None:
        self.n_unbegun -= n
        self._world.n_told_given_back += n

    def _emit(self, *events: Mapping[str, Any], flush: bool = False) -> None:
        self._unwritten += events
        if flush or self._chance.random() < 0.7:
            self._flush()

    def _flush(self) -> None:
        events, self._unwritten = self._unwritten, []
        for event in events:
            if event["ev"] == "rollout":
                self._world.written[Key.of(event)] = event
            if event["ev"] == "dropped":
                self._give_back(len(event["runs"]))
        if events:
            self._post(Heard(self, [(event, json.dumps(event).encode() + b"\n") for event in events]))

    @property
    def n_scoring(self) -> int:
        return sum(scoring.held for scoring in self._scorings)

    @property
    def _may_ask(self) -> bool:
        open_requests = sum(rollout.at in ("open", "permit") for rollout in self.rollouts.values())
        return self._may_begin and open_requests < max(1, self.limit)

    @property
    def _may_begin(self) -> bool:
        return not self.paused and self._world.time >= self._held_until

    def moves(self) -> Iterator[Move]:
        climate, chance = self._world.climate, self._chance
        if self.killed:
            yield lambda: self.die("SIGKILL")
            return
        if self.placed_at is None:
            yield self._get_a_place
            return
        if self._world.machines_left and chance.random() < 0.02:
            yield lambda: self._world.lose_machine(self.machine)
        if self._world.deaths_left and chance.random() < 0.03:
            yield self._crash
        if self.frozen:
            return
        if not self.ready:
            yield self._load
            return
        if self._unwritten:
            yield self._flush
        if self.doomed:
            yield lambda: self.die("exit status 3")
            return
        if self._requests:
            yield self._read
        if self.closing:
            yield lambda: self.die("exit status 0")
            return
        if self._probes:
            yield self._probed
        most_begun = min(2 * self.limit, self.max_begun)
        if self._waiting and self._may_begin and self.held < self.limit and len(self.rollouts) < most_begun:
            yield self._begin
        for rollout in self.rollouts.values():
            yield from self._moves_of(rollout)
        for scoring in self._scorings:
            if scoring.held or (self.n_scoring < self.max_scorings and not self.paused):
                yield lambda scoring=scoring: self._score(scoring)  # type: ignore[misc]
                if self.name == "scorer":
                    break
        if climate.stalls and (self.rollouts or self._scorings) and chance.random() < climate.stalls:
            yield self._stall
        if climate.silences and (self.rollouts or self._scorings) and chance.random() < climate.silences:
            yield self._fall_silent

    def _get_a_place(self) -> None:
        """Mostly go on waiting."""
        if self._chance.random() < 0.1:
            self.placed_at = self._world.time
        else:
            self._world.time += 2.0

    def _crash(self) -> None:
        self._world.deaths_left -= 1
        self.die("SIGSEGV")

    def _load(self) -> None:
        climate = self._world.climate
        if len(self._world.hosts) > 1 and self._chance.random() < climate.unloadable:
            if self._chance.random() < 0.5:
                self._emit({"ev": "refused", "error": "not twice", "details": ""}, flush=True)
            self.die("exit status 5")
            return
        self.ready = True
        self.doomed = self._chance.random() < climate.doomed
        ready: dict[str, Any] = {"ev": "ready", "scorers": climate.scorers, "sync": climate.sync}
        ready |= {"max_rollouts": climate.max_rollouts, "max_scorings": climate.max_scorings}
        ready["grouped"] = climate.grouped
        if climate.saved and len(self._world.hosts) > 1:
            self.has_other_code = self._world.is_loaded and self._chance.random() < climate.saved
        self._world.is_loaded = True
        digests = dict.fromkeys(climate.scorers, "1" if self.has_other_code else "0")
        self._emit({**ready, "digests": digests}, flush=True)

    def _read(self) -> None:
        for _ in range(self._chance.randint(1, len(self._requests))):
            message = self._requests.popleft()
            match message["op"]:
                case "run":
                    self._waiting.append(key := Key.of(message))
                    if key.run.model in self._denied:
                        self._drop(key.run.model)
                case "score":
                    self._scorings.append(Scoring(Key.of(message), list(message["names"])))
                case "score_group":
                    first, *others = (Key.of(run) for run in message["runs"])
                    self._scorings.append(Scoring(first, list(message["names"]), others=tuple(others)))
                case "limit":
                    self.limit, self.max_begun = message["limit"], message["begun"]
                    self.max_scorings = message["scorings"]
                    self._emit({"ev": "limited"})
                case "hold":
                    self._held_until = max(self._held_until, self._world.time + message["wait_s"])
                case "permit":
                    for rollout in self.rollouts.values():
                        rollout.permitted |= rollout.permit in message["ids"]
                case "pause" | "resume" as op:
                    self.paused = op == "pause"
                case "drop":
                    self._drop(message["model_tag"])
                case "deny":
                    self._denied.add(message["model_tag"])
                case "probe":
                    self._probes.append(message["model_tag"])
                case "close":
                    self.closing = True

    def _drop(self, tag: str | None) -> None:
        dropped = [key for key in self._waiting if tag in (None, key.run.model)]
        self._waiting = deque(key for key in self._waiting if key not in dropped)
        self._emit({"ev": "dropped", "runs": [key.to_json() for key in dropped]})

    def _probed(self) -> None:
        tag = self._probes.pop(0)
        error = "401" if self._chance.random() < self._world.climate.fails / 4 else None
        self._emit({"ev": "probed", "model_tag": tag, "error": error, "is_systemic": self._chance.random() < 0.5})

    # -- rolling out ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        key = self._waiting.popleft()
        self.rollouts[key] = Rollout(key, self._chance.randint(1, 2))
        self.held += 1
        self.n_unbegun -= 1
        self._world.begins(self, key)
        self._emit({"ev": "start", **key.to_json()}, flush=True)

    def _moves_of(self, rollout: Rollout) -> Iterator[Move]:
        climate, chance = self._world.climate, self._chance
        if rollout.at == "code" and rollout.requests_left and self._may_ask:
            yield lambda: self._ask(rollout)
        if rollout.at == "permit" and rollout.permitted:
            yield lambda: self._sent(rollout)
        if rollout.at == "open":
            yield lambda: self._answered(rollout)
            if chance.random() < climate.retries:
                yield lambda: self._retry(rollout)
            if chance.random() < climate.denies:
                yield lambda: self._deny(rollout)
        if rollout.at == "retry" and self.held < self.limit and self._may_ask:
            yield lambda: self._go_on(rollout)
        if rollout.at == "code" and not rollout.requests_left:
            yield lambda: self._roll(rollout, None)
        if rollout.at != "code" and chance.random() < climate.fails:
            yield lambda: self._roll(rollout, chance.choice(("provider", "model", "agent", "timeout")))
        if chance.random() < climate.breaks / 10:
            yield lambda: self._break(rollout)

    def _ask(self, rollout: Rollout) -> None:
        rollout.at = "open"
        if self._setup.permits:
            self._numbers += 1
            rollout.at, rollout.permit, rollout.permitted = "permit", self._numbers, False
            size = {"chars": 20, "max_tokens": None}
            self._emit({"ev": "ask", **rollout.key.to_json(), "id": rollout.permit, **size})

    def _sent(self, rollout: Rollout) -> None:
        rollout.at = "open"

    def _over(self, rollout: Rollout) -> None:
        if rollout.permit is not None:
            fields = {"ev": "answered", "usage": USAGE} if rollout.at == "open" else {"ev": "unused"}
            self._emit({**fields, "id": rollout.permit})
            rollout.permit = None

    def _answered(self, rollout: Rollout) -> None:
        self._over(rollout)
        rollout.requests_left -= 1
        rollout.at = "code"

    def _deny(self, rollout: Rollout) -> None:
        """The model denies every request. The agent may not mind."""
        tag = str(rollout.key.run.model)
        if tag not in self._denied:
            self._denied.add(tag)
            self._emit({"ev": "denied", "model_tag": tag, "error": "401"})
            self._drop(tag)
        self._roll(rollout, self._chance.choice(("provider", None)))

    def _retry(self, rollout: Rollout) -> None:
        self._over(rollout)
        if self._chance.random() < self._world.climate.throttles:
            wait_s = self._chance.choice((0.5, 30.0, 300.0))
            self._held_until = max(self._held_until, self._world.time + wait_s)
            self._emit({"ev": "throttled", "wait_s": wait_s})
        self._emit({"ev": "retry", **rollout.key.to_json(), "waits": True})
        rollout.at = "retry"
        self.held -= 1

    def _go_on(self, rollout: Rollout) -> None:
        self.held += 1
        self._emit({"ev": "retry", **rollout.key.to_json(), "waits": False})
        self._ask(rollout)

    def _end(self, rollout: Rollout) -> None:
        if rollout.at == "retry":
            self._emit({"ev": "retry", **rollout.key.to_json(), "waits": False})
        else:
            self.held -= 1
        self._over(rollout)
        del self.rollouts[rollout.key]

    def _roll(self, rollout: Rollout, boundary: str | None) -> None:
        self._end(rollout)
        key = rollout.key
        event: dict[str, Any] = {"ev": "rollout", **key.to_json(), "ms": 1.0, "usage": USAGE, "output": {}}
        event["messages"], event["n_prompt"] = [{"role": "assistant", "content": "42"}], 0
        if boundary is not None:
            event |= {"boundary": boundary, "error": f"what happened to {key.run}", "details": ""}
        self._emit(event)
        climate = self._world.climate
        names = [name for name in climate.scorers if name not in (*climate.sync, *climate.grouped)]
        if boundary is None and names and self._setup.scores_at_once:
            self._scorings.append(Scoring(key, names))

    def _break(self, rollout: Rollout) -> None:
        self._end(rollout)
        self._emit({"ev": "broken", **rollout.key.to_json(), "boundary": "agent", "error": "cancelled"})

    # -- scoring -------------------------------------------------------------------------------------------

    def _score(self, scoring: Scoring) -> None:
        """Begin its next function, or end the one that runs."""
        if not scoring.held:
            scoring.held = True
            self._world.scores()
        if scoring.name is None:
            scoring.name = scoring.names.pop(0)
            self._emit(*({"ev": "scoring", **key.to_json(), "name": scoring.name} for key in scoring.keys), flush=True)
            return
        name, scoring.name = scoring.name, None
        for key in scoring.keys:
            kind, value = self._world.truth(key.run, name)
            event: dict[str, Any] = {"ev": "score", **key.to_json(), "ms": 1.0, "output": {}}
            event["scores"] = {name: value} if kind == "score" else {}
            event["errors"] = {name: {"message": "ValueError", "details": ""}} if kind == "error" else {}
            self._emit(event | ({"removed": True, "name": name} if kind == "removed" else {}))
        if not scoring.names:
            self._scorings.remove(scoring)

    def _fall_silent(self) -> None:
        """Run code in C that never returns to Python."""
        self.frozen = True

    def _stall(self) -> None:
        """Report code that cannot be interrupted; the host mostly does nothing more."""
        keys = [*self.rollouts, *(scoring.key for scoring in self._scorings if scoring.name is not None)]
        if keys:
            key = self._chance.choice(keys)
            self._emit({"ev": "stalled", **key.to_json(), "stack": "here"}, flush=True)
            self.frozen = self._chance.random() < 0.7
