"""The engine of an eval run: its thread owns the run's state, and turns runs into records, through hosts.

`Engine` is what all other threads see of it, `EngineLoop` works in the thread. Other threads (pytest's main thread, the
hosts' readers) only post messages to it, so its state needs no lock.
`hosts` owns the processes, `table` the runs, `recorder` the records.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pytest_osmosis import seams
from pytest_osmosis.cassettes.writer import ExchangeLog
from pytest_osmosis.engine.feed import Feed
from pytest_osmosis.engine.host_connection import Died, EndedBy, Heard, bound_log
from pytest_osmosis.engine.hosts import Hosts, Most, start_failure
from pytest_osmosis.engine.job import Job
from pytest_osmosis.engine.notices import Notices, StallNotice, WaitNotice
from pytest_osmosis.engine.permits import Permits, Probing
from pytest_osmosis.engine.recorder import Recorder
from pytest_osmosis.engine.recovery import Recovery
from pytest_osmosis.engine.run_table import Host, RunTable
from pytest_osmosis.engine.runs import Runs
from pytest_osmosis.errors import CassetteError, CodeError, HostError, JournalError
from pytest_osmosis.host.protocol import HostEvent, Key, ReadyEvent
from pytest_osmosis.record.journal import Journal
from pytest_osmosis.record.lifecycle import REQUESTED, Stop, StopReason
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunCounts
from pytest_osmosis.text.names import listed
from pytest_osmosis.verdicts.pass_rule import Outcome

GATHER_S = 0.005
"""A turn waits this long after its first message, so that one write and one refill serve many runs."""
TURN_S = 0.25
"""A turn begins this often, even if nothing arrives."""
LOOK_AFTER_S = 0.1
"""The engine looks after its hosts no more often than this."""
MOST_CHANGED = 5


class Submit(NamedTuple):
    runs: Sequence[RunId]


class LoadedCode(NamedTuple):
    """Digests of the code that is loaded: of rollouts by file, None if none are made, and of rewards by function."""

    rollouts: Mapping[str, str] | None = None
    rewards: Mapping[str, str] = MappingProxyType({})


class Close(NamedTuple):
    grace_s: float


EngineMessage = Submit | Stop | Close | Heard | Died | Callable[[], None]
"""Messages of other threads, and calls that they let the engine make."""


class EngineLoop:
    """Handles the messages in `inbox`. `loaded` is set once the user's code is loaded or `refused`, `ended` at the end.

    Other threads may put messages into `inbox`, wait for the two events, and read values that are replaced as a whole.
    """

    def __init__(self, job: Job, journal: Journal, every: Callable[[RunId, Outcome], None]) -> None:
        self._clock = job.clock
        self.inbox: queue.SimpleQueue[EngineMessage] = queue.SimpleQueue()
        self.loaded = threading.Event()
        self.ended = threading.Event()
        self.refused: CodeError | HostError | None = None
        self.notes: tuple[str, ...] = ()
        self.code = LoadedCode()
        self.paused = False
        self.notices = Notices()
        self.recorder = Recorder(job, journal, every)
        self.table = RunTable(job.n, job.clock)
        self.hosts = Hosts(job, self.inbox.put, self.notices)
        self.most_in_flight = job.batch_size
        self.permits = Permits(job.limits)
        self.judge_permits = Permits(job.judge_limits, prefix="judge.")
        self.runs = Runs(job, self.table, self.hosts, self.recorder, self.notices)
        self._feed = Feed(self.runs)
        self._recovery = Recovery(self.runs)
        self.probing = Probing(self.runs, self.permits, self.judge_permits)
        self._job = job
        self._stall_notice = StallNotice(job.watchdog_s, self._clock.now())
        self._wait_notice = WaitNotice(told=job.told_waiting)
        self.exchanges = ExchangeLog(job.exchanges)
        sent = job.setup.sends_artifacts
        self.artifacts = seams.Artifacts(Path(job.setup.artifacts), self.notices) if sent else None
        self._looked_at = 0.0
        self._looked_after_at = 0.0
        self._waits_to_go = False
        self._closing_at: float | None = None
        self._broken = False
        self._ready: ReadyEvent | None = None
        self._begun = False

    def run(self) -> None:
        try:
            try:
                self._work()
            except Exception as error:
                self._fail(error)
            self.end()
        finally:
            self.loaded.set()
            self.ended.set()

    def _work(self) -> None:
        try:
            self.hosts.start()
        except HostError as error:
            self._refuse(error)
        while self._closing_at is None or (self.table.states and self._clock.now() < self._closing_at):
            self.turn()

    def _fail(self, error: Exception) -> None:
        """End the eval because of a bug in the engine: keep its records, and skip the rest."""
        self.notices.add("".join(traceback.format_exception(error)))
        text = f"pytest-osmosis failed, please report it: {type(error).__name__}: {error}"
        self.refused = self.refused or HostError(text)
        self._broken = True
        self.loaded.set()
        self.hosts.kill()
        self.runs.give_up(text)
        self._settle()
        while self._closing_at is None:
            for message in self._arrived():
                match message:
                    case Submit(runs):
                        self.runs.give_up(text, runs)
                    case Close():
                        self._closing_at = self._clock.now()
            self._settle()

    def turn(self) -> None:
        """Handle what has arrived, refill the hosts, write the journal, and only then report what is done."""
        for message in self._arrived():
            self._handle(message)
        self._write_exchanges()
        if not self.paused:
            self._look_after_hosts()
            self._feed.refill(rollouts=self.probing.is_over and self._closing_at is None)
            if self.hosts.starts.given_up is not None:
                self._recovery.give_up_hosts(self.hosts.starts.given_up)
            self._report_stall()
        self.hosts.shares.tell()
        self.hosts.gather(rolls=bool(self.table.queue), scores=bool(self.table.unscored["scorer"]))
        bound_log(self._job.host_log)
        now = self._clock.now()
        self.permits.grant(now, not_before=math.inf if self.paused else self.hosts.throttle.until)
        self.judge_permits.grant(now, not_before=math.inf if self.paused else 0.0)
        if self.probing.is_over:
            self.runs.check_time(now)
        self._heed_stop_request(now)
        self._settle()

    def _arrived(self) -> list[EngineMessage]:
        try:
            now = self._clock.now()
            most_s = GATHER_S if self.table.stored else TURN_S
            wait_s = self.judge_permits.wait_s(now, self.permits.wait_s(now, most_s))
            messages = [self._clock.wait(self.inbox, wait_s)]
            if self.table.queue:
                self._clock.sleep(GATHER_S)
            messages.extend(self._waiting())
        except queue.Empty:
            return []
        return messages

    def _waiting(self) -> Iterator[EngineMessage]:
        with contextlib.suppress(queue.Empty):
            while True:
                yield self.inbox.get_nowait()

    def _look_after_hosts(self) -> None:
        now = self._clock.now()
        if now - self._looked_after_at < LOOK_AFTER_S:
            return
        self._looked_after_at = now
        self.hosts.look_after(self.probing.host)
        if not self.hosts.shares.in_flight or self.hosts.closing:
            return  # the session holds the eval back, or it is over
        if (text := self._wait_notice.check(now, self.hosts.waiting())) is not None:
            self.notices.announce(text)

    def _report_stall(self) -> None:
        if not self.hosts.shares.in_flight:
            self._stall_notice.since = self._clock.now()  # the session holds the eval back
        states, n_queued = self.table.states.values(), len(self.table.queue) if self.probing.is_over else 0
        n_done = self.recorder.reports.n_done
        if (text := self._stall_notice.check(self._clock.now(), n_done, states, n_queued)) is not None:
            waiting = self.hosts.waiting().text
            self.notices.alert(f"{text}; {waiting}" if waiting else text)

    def _heed_stop_request(self, now: float) -> None:
        """Begin no further run if somebody asks for that with a file in the run directory. Look for it now and then."""
        if now - self._looked_at < TURN_S or self.runs.stopped is not None:
            return
        self._looked_at = min(now, self._clock.now())
        if self.runs.any_left and self._job.stop_request.exists():
            self.runs.stop(Stop("requested", REQUESTED))

    def _write_exchanges(self) -> None:
        """Write the exchanges, before the journal has their rollouts and before another host repeats one."""
        try:
            self.exchanges.write()
        except CassetteError as error:
            self._cannot_write(error)

    def _cannot_write(self, error: CassetteError | JournalError) -> None:
        self.notices.add(str(error))
        self.runs.stop(Stop("journal", str(error)))

    def _settle(self) -> None:
        self._write_exchanges()
        self.most_in_flight = self.hosts.shares.most_in_flight
        try:
            self._report()
        except JournalError as error:
            self._cannot_write(error)
            self._report()

    def _report(self) -> None:
        tally = self.table.tally
        self.recorder.settle(
            tally.n_handed_out,
            in_flight=tally.n_in_flight,
            retrying=tally.n_retrying,
            held=tally.n_held,
            held_by=self.permits.held_by or self.judge_permits.held_by,
        )

    def end(self) -> None:
        """End the hosts and close the journal. The hosts' last events count; runs still in flight are skipped."""
        self.hosts.close()
        bound_log(self._job.host_log)
        for message in () if self._broken else self._waiting():
            if isinstance(message, Submit | Heard):
                self._handle(message)
        stopped = self.runs.stopped
        reason = stopped.text if stopped is not None and stopped.reason != "closed" else "interrupted"
        if self.artifacts is not None:
            self.artifacts.close()
        self.runs.abandon(reason)
        self._feed.report_rest(reason)
        self.runs.judge_all()
        self.runs.scorings.say_what_groups_lacked()
        if self._feed.has_rescored_all:
            self.recorder.rescored()
        all_done = self.recorder.reports.n_done >= self._job.n_runs
        self.recorder.ended(self.runs.stopped, self.runs.baseline_stopped, all_done=all_done)
        self._settle()
        if (discrepancy := self.recorder.discrepancy(self.table.submitted)) is not None:
            self.notices.add(discrepancy)
            self.runs.stopped = Stop("systemic", discrepancy)
        self.close_journal()

    def close_journal(self) -> None:
        for close in (self.exchanges.close, self.recorder.close):
            try:
                close()
            except (CassetteError, JournalError) as error:
                self.notices.add(str(error))

    def _handle(self, message: EngineMessage) -> None:
        match message:
            case Submit(runs):
                self.recorder.begin()
                self.runs.submit(runs)
            case Heard(connection, events):
                host = self.hosts.of(connection)
                host.heard_at = self._clock.now()
                for event, raw in events:
                    self._heard(host, event, raw)
            case Died(connection, how, by, machine):
                if by == "host":
                    how = self.hosts.of(connection).ended_for or how
                self._died(self.hosts.died(connection, how, by), how, by, machine)
            case Stop():
                self.runs.stop(message)
            case Close(grace_s):
                self.runs.stop(Stop("closed", "the session ended"))
                self.hosts.closing = True
                self._closing_at = self._clock.now() + grace_s
            case _:
                message()

    def go(self) -> None:
        self.recorder.begin()
        self._heed_stop_request(math.inf)
        self._waits_to_go = self.paused
        if not self.paused:
            self.probing.begin()
        self._begun = True
        self._start_scorers()

    def _start_scorers(self) -> None:
        """Start what runs functions that block, once there is something to score, and after the models are probed."""
        if self._begun and self._ready is not None and self._ready["sync"]:
            self.hosts.start_scorers()

    def pause(self) -> None:
        self.paused = True
        self.hosts.broadcast({"op": "pause"})

    def resume(self) -> None:
        self.paused = False
        self._stall_notice.since = self._clock.now()
        for host in self.hosts:
            host.hand([{"op": "resume"}])
        if self._waits_to_go:
            self._waits_to_go = False
            self.probing.begin()
        else:
            self.probing.go_on()

    def _heard(self, host: Host, event: HostEvent, raw: bytes) -> None:
        match event["ev"]:
            case "start" | "retry" | "rollout" | "scoring" | "score":
                if (state := self.table.of(event)) is not None:
                    self.runs.heard(host, state, event, raw)
            case "ready":
                self._became_ready(host, event)
            case "refused":
                self._refuse(CodeError(event["error"], event["details"]))
            case "probed":
                self.probing.answered(event)
            case "denied":
                self.hosts.broadcast({"op": "deny", "model_tag": event["model_tag"], "error": event["error"]})
                self.runs.stop_model(event["model_tag"], event["error"])
            case "throttled":
                self.hosts.throttled(host, event["wait_s"])
            case "ask":
                permits = self.judge_permits if event.get("judge") else self.permits
                permits.ask(host, event, self.table.states.get(RunId.of(event)))
            case "answered":
                for permits in (self.permits, self.judge_permits):  # no two requests of a host have the same number
                    permits.answered(host, event["id"], event["usage"])
            case "unused":
                for permits in (self.permits, self.judge_permits):
                    permits.unused(host, event["id"])
            case "limited":
                host.limited()
            case "dropped":
                host.gives_back = False
                for key in reversed(event["runs"]):  # those that come back are queued before all others, in order
                    self.runs.dropped(Key.of(key))
            case "artifact" | "left_out":
                if self.artifacts is not None and self.table.of(event) is not None:
                    self.artifacts.take(host, event)
            case "exchange":
                self.exchanges.add(raw, sent="stored" not in event)
            case "stalled":
                self._recovery.stalled(host, self.table.of(event), event["stack"])
            case "broken":
                if (state := self.table.of(event)) is not None:
                    self._recovery.broken(host, state, event["boundary"], event["error"])

    def _became_ready(self, host: Host, event: ReadyEvent) -> None:
        if self._ready is not None and (change := _code_change(self._ready, event)) is not None:
            host.connection.kill()
            self._refuse(CodeError(change))
            return
        self.hosts.became_ready(host)
        if host.role != "host":
            return
        if not self.paused:
            self.probing.go_on()
        if self.loaded.is_set():
            return
        code = event.get("rollout_code", {})
        rolls = self._job.setup.code.role == "roll"
        try:
            if rolls:
                self._job.check_code(code)
        except CodeError as error:
            self._refuse(error)
            return
        self.notes = tuple(event.get("notes", ()))
        self.hosts.shares.allow(Most(event.get("max_rollouts"), event.get("max_scorings")), self.notices)
        self.recorder.loaded(event, code if rolls else None)
        self.code = LoadedCode(code if rolls else None, self.recorder.codes)
        self._ready = event
        if self.table.submitted:
            self.recorder.begin()
        self.loaded.set()
        self._start_scorers()

    def _refuse(self, error: CodeError | HostError) -> None:
        """Start no further host: the code does not load. If it has loaded before, living hosts continue."""
        self.hosts.starts.give_up(str(error))
        if not self.loaded.is_set():
            self.refused = error
            self.runs.stop(Stop("systemic", str(error)))
            self.loaded.set()

    def _died(self, host: Host, how: str, by: EndedBy, machine: str) -> None:
        if by == "host" and not self.loaded.is_set() and not self.hosts.closing:
            self._refuse(HostError(start_failure(how)))
        if host is self.probing.host:
            self.probing.host = None  # another one probes, once it is ready
        if not self.paused:
            self.probing.go_on()
        if self.artifacts is not None:
            self.artifacts.died(host)
        self.permits.died(host)
        self.judge_permits.died(host)
        self._recovery.died(host, how, by, machine)
        if host.role != "quarantine":  # that one is started when it is needed
            self.hosts.add(host.role)
        if not (self.loaded.is_set() or self.hosts.rolling or self.hosts.starts.given_up is None):
            self._refuse(HostError(self.hosts.starts.given_up))


def _code_change(then: ReadyEvent, now: ReadyEvent) -> str | None:
    """Return how the code that a host has loaded differs from the first one's, None if it does not.

    A scorer loads a part of it.
    """
    files_then, files = then.get("files", {}), now.get("files", {})
    changed = [file for file in files if files_then.get(file, files[file]) != files[file]]
    if not changed:
        others = [name for name, digest in now["digests"].items() if then["digests"].get(name) != digest]
        others += ["the agent"] if now.get("rollout_code", {}) not in ({}, then.get("rollout_code", {})) else []
        changed = [file for file in files if others and file not in files_then] or others  # a new file, or one is gone
    if not changed:
        return None
    has, it = ("has", "it") if len(changed) == 1 else ("have", "them")
    fix = "start the eval again, and leave its code as it is while it runs"
    return f"{listed(changed, MOST_CHANGED)} {has} changed since the eval loaded {it}; {fix}"


class Engine:
    """Runs one eval. Every method may be called from any thread.

    `every` is called from the engine's own thread, once for each run that is done or skipped, after the journal
    holds it.
    """

    def __init__(self, job: Job, journal: Journal, every: Callable[[RunId, Outcome], None]) -> None:
        self.job = job
        self.loop = EngineLoop(job, journal, every)
        self._limit = job.batch_size
        self.notices = self.loop.notices
        self.recorder = self.loop.recorder
        self.ledger = self.recorder.ledger
        self._thread = threading.Thread(target=self.loop.run, name="osmosis-engine", daemon=True)

    @property
    def progress(self) -> RunCounts:
        return self.loop.recorder.reports.progress

    @property
    def stopped(self) -> Stop | None:
        """The reason why no further run begins, None while runs begin."""
        return self.loop.runs.stopped

    @property
    def baseline_stopped(self) -> str | None:
        """The reason why no further run of the baseline begins, None while they begin."""
        return self.loop.runs.baseline_stopped

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        """Start the hosts, which load the user's code. No request is sent before `go`."""
        self._thread.start()

    def loaded(self) -> None:
        """Wait until the user's code is loaded. Raises `CodeError` or `HostError` if it does not load."""
        self.loop.loaded.wait()
        if self.loop.refused is not None:
            raise self.loop.refused

    @property
    def has_refused_code(self) -> bool:
        """True if the user's code does not load."""
        return isinstance(self.loop.refused, CodeError)

    def go(self) -> None:
        """Probe the models, then roll out what is submitted."""
        self.loop.inbox.put(self.loop.go)

    def submit(self, runs: Iterable[RunId]) -> None:
        """Roll these out, in this order, each once however often it is submitted."""
        self.loop.inbox.put(Submit(list(runs)))

    def limit(self, in_flight: int) -> None:
        """Begin no rollout from now on while `in_flight` others are in flight, at most `batch_size`. Those finish."""
        self._limit = max(0, min(in_flight, self.job.batch_size))
        self.loop.inbox.put(partial(self.loop.hosts.shares.limit, self._limit))

    def grow(self, n_hosts: int) -> None:
        """Start further hosts until there are `n_hosts`, at most `batch_size`, as a cluster has room for more."""
        self.loop.inbox.put(partial(self.loop.hosts.grow, n_hosts))

    @property
    def most_in_flight(self) -> int:
        """The most rollouts that may be in flight now. After `limit` it falls as rollouts end."""
        return 0 if self.loop.ended.is_set() else max(self._limit, self.loop.most_in_flight)

    def stop(self, reason: StopReason, text: str) -> None:
        """Begin no further run; those that had not begun are skipped with the reason `text`. Runs in flight finish."""
        self.loop.inbox.put(Stop(reason, text))

    def pause(self) -> None:
        """Begin no run and no request until `resume`; open requests finish. Idempotent."""
        self.loop.inbox.put(self.loop.pause)

    def resume(self) -> None:
        """Go on after `pause`. Idempotent."""
        self.loop.inbox.put(self.loop.resume)

    def release(self) -> None:
        """Let the hosts end, because all runs that will be submitted are done."""
        self.loop.inbox.put(self.loop.hosts.release)

    def close(self, grace_s: float = 0.0) -> None:
        """Give runs in flight `grace_s`, then end hosts, journal and thread. Idempotent.

        An engine that was not started starts no host for that, and skips what was submitted.
        """
        self.loop.inbox.put(Close(grace_s))
        if not self.is_started:
            self.loop.hosts.closing = True
            self._thread.start()
        self.loop.ended.wait()  # not join(): once Ctrl-C has interrupted that, it never waits again

    def kill(self) -> None:
        """End the hosts now, so that `close` has nothing to wait for."""
        self.loop.hosts.kill()
