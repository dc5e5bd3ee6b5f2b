"""The engine: one thread that owns an eval run's state and turns runs into records, through engine hosts.

Everyone else (pytest's main thread, the hosts' readers) only posts messages to it, and `every` hears of each run that
is done, once, after the journal holds it; so there is no lock on its state. There is no event loop here either.
`hosts` owns the processes, `dispatch` the runs, `book` what is known of them.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_osmosis.engine.dispatch import Dispatch
from pytest_osmosis.engine.host_connection import Died, Heard
from pytest_osmosis.engine.host_log import HostLog
from pytest_osmosis.engine.hosts import Host, Hosts, exit_text
from pytest_osmosis.engine.job import Job, Progress, Stop, StopReason
from pytest_osmosis.engine.permits import Permits
from pytest_osmosis.engine.recorder import Recorder
from pytest_osmosis.engine.stall_notice import Watchdog
from pytest_osmosis.engine.throttle import Throttle
from pytest_osmosis.errors import CodeError, HostError, JournalError
from pytest_osmosis.host.protocol import HostEvent, Key, ReadyEvent
from pytest_osmosis.record.journal import Journal
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import Ledger
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule

GATHER_S = 0.005
"""A turn begins this long after the message that it began for: one write and one refill serve many runs."""
TURN_S = 0.25
"""The engine looks after its hosts this often, even if nothing arrives."""


class Submit(NamedTuple):
    runs: Sequence[RunId]


class Go(NamedTuple):
    pass


class Pause(NamedTuple):
    pass


class Resume(NamedTuple):
    pass


class Release(NamedTuple):
    pass


class Close(NamedTuple):
    grace_s: float


Message = Submit | Go | Stop | Pause | Resume | Release | Close | Heard | Died


class Engine:
    """Runs one eval. Every public method may be called from any thread; `every` is called from the engine's own.

    `notices` are for the summary; `alerts` are those of them that a user should see at once.
    """

    def __init__(self, job: Job, journal: Journal, every: Callable[[RunId, Outcome], None]) -> None:
        self.job = job
        self.notices: list[str] = []
        self.alerts: list[str] = []
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._book = Recorder(job, journal, every)
        self._hosts = Hosts(job, self._inbox.put, self.notices)
        self._log = HostLog(job.host_log)
        self._permits = Permits(job.limits)
        self._dispatch = Dispatch(job, self._hosts, self._book, self.notices, self._alert)
        self._loaded = threading.Event()
        self._refused: CodeError | HostError | None = None
        self._prober: Host | None = None
        self._to_probe: list[ModelTag] = []
        self._dispatching = False
        self._paused = False
        self._waits_to_go = False
        self._closing: float | None = None
        self._broken = False
        self._watchdog = Watchdog(job.watchdog_s, time.monotonic())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="osmosis-engine", daemon=True)

    # -- for everyone ------------------------------------------------------------------------------------

    @property
    def judging(self) -> PassRule:
        """Who decides whether a run passed; complete once `loaded` has returned."""
        return self._book.judging

    @property
    def ledger(self) -> Ledger:
        """The records so far."""
        return self._book.ledger

    @property
    def progress(self) -> Progress:
        """The counts so far."""
        return self._book.progress

    @property
    def kept(self) -> Mapping[str, int]:
        """How many scores of each function were kept from before."""
        return self._book.kept

    @property
    def decided(self) -> bool:
        """True where stored rollouts were scored again, all of them, and the journal holds it."""
        return self._book.is_decided

    @property
    def stopped(self) -> Stop | None:
        """Why nothing new is begun, None while it is."""
        return self._dispatch.stopped

    @property
    def baseline_stopped(self) -> str | None:
        """Why the baseline's model is asked no more, None while it is."""
        return self._dispatch.baseline_stopped

    @property
    def throttle(self) -> Throttle:
        """What servers without room had everyone do."""
        return self._hosts.throttle

    @property
    def held_s(self) -> Mapping[str, float]:
        """For how long each limit of a provider held what could have been sent."""
        return dict(self._permits.held_s)

    def start(self) -> None:
        """Start the hosts, which load the user's code. Nothing is asked of a model before `go`."""
        self._thread.start()

    def loaded(self) -> None:
        """Wait until the user's code is loaded. `CodeError` or `HostError` where it cannot be."""
        self._loaded.wait()
        if self._refused is not None:
            raise self._refused

    def go(self) -> None:
        """Probe the model, then roll out what is submitted."""
        self._inbox.put(Go())

    def submit(self, runs: Iterable[RunId]) -> None:
        """Roll these out, in this order, each once however often it is submitted."""
        self._inbox.put(Submit(list(runs)))

    def stop(self, reason: StopReason, text: str) -> None:
        """Begin nothing more: what was not begun is skipped with `text` as its reason. In flight goes on."""
        self._inbox.put(Stop(reason, text))

    def pause(self) -> None:
        """Begin nothing and ask for nothing until `resume`; requests that are open go on. Idempotent."""
        self._inbox.put(Pause())

    def resume(self) -> None:
        """Go on after `pause`. Idempotent."""
        self._inbox.put(Resume())

    def release(self) -> None:
        """All that will ever be submitted is done: the hosts may end while others still report it."""
        self._inbox.put(Release())

    def close(self, grace_s: float = 0.0) -> None:
        """Give what is in flight `grace_s`, then end hosts, journal and thread. Idempotent."""
        self._inbox.put(Close(grace_s))
        if self._thread.ident is None:  # never started
            self._close_book()
        else:
            self._ended.wait()  # not join(): once Ctrl-C has interrupted that, it never waits again

    def kill(self) -> None:
        """End the hosts now, so that `close` has nothing to wait for."""
        self._hosts.kill()

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                self._work()
            except Exception as error:
                self._fail(error)
            self._end()
        finally:
            self._loaded.set()
            self._ended.set()

    def _work(self) -> None:
        try:
            self._hosts.start()
        except HostError as error:
            self._refuse(error)
        while self._closing is None or (self._dispatch.flights and time.monotonic() < self._closing):
            self._turn()

    def _fail(self, error: Exception) -> None:
        """The engine itself is broken: nobody must wait for it. What it knows is kept, the rest stays pending."""
        self.notices.append("".join(traceback.format_exception(error)))
        text = f"the engine failed: {type(error).__name__}: {error}"
        self._refused = self._refused or HostError(text)
        self._broken = True
        self._loaded.set()
        self.kill()
        self._dispatch.give_up(text)
        self._settle()
        while self._closing is None:
            for message in self._arrived():
                match message:
                    case Submit(runs):
                        self._dispatch.give_up(text, runs)
                    case Close():
                        self._closing = time.monotonic()
            self._settle()

    def _turn(self) -> None:
        """Handle what has arrived, refill the hosts, write the journal, and only then say what is done."""
        for message in self._arrived():
            self._handle(message)
        if not self._paused:
            self._hosts.look_after(lambda host: host is self._prober or self._dispatch.busy(host))
            self._dispatch.refill(rollouts=self._dispatching and self._closing is None)
            self._watch()
        self._hosts.gather(busy=bool(self._dispatch.queue))
        self._log.bound()
        now = time.monotonic()
        self._permits.grant(now, not_before=math.inf if self._paused else self._hosts.throttle.until)
        if self._dispatching:
            self._dispatch.look_at_time(now)
        self._settle()

    def _watch(self) -> None:
        flights, queued = list(self._dispatch.flights.values()), len(self._dispatch.queue)
        said = self._watchdog.look(time.monotonic(), self._book.n_done, flights, queued if self._dispatching else 0)
        if said is not None:
            self._alert(said)

    def _alert(self, text: str) -> None:
        self.notices.append(text)
        self.alerts.append(text)

    def _arrived(self) -> list[Message]:
        try:
            messages = [self._inbox.get(timeout=self._permits.wait_s(time.monotonic(), TURN_S))]
            if self._dispatch.queue:
                time.sleep(GATHER_S)
            messages.extend(self._left())
        except queue.Empty:
            return []
        return messages

    def _left(self) -> Iterator[Message]:
        """What has arrived and was not looked at."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._inbox.get_nowait()

    def _handle(self, message: Message) -> None:
        match message:
            case Submit(runs):
                self._dispatch.submit(runs)
            case Go():
                self._begin()
            case Heard(line, events):
                host = self._hosts.of(line)
                host.heard_at = time.monotonic()
                for event, raw in events:
                    self._heard(host, event, raw)
            case Died(line, status):
                self._died(self._hosts.died(line, exit_text(status)), exit_text(status))
            case Stop():
                self._dispatch.stop(message)
            case Pause():
                self._paused = True
                self._hosts.broadcast({"op": "pause"})
            case Resume():
                self._resume()
            case Release():
                self._hosts.release()
            case Close(grace_s):
                self._dispatch.stop(Stop("closed", "the session ended"))
                self._hosts.closing = True
                self._closing = time.monotonic() + grace_s

    def _resume(self) -> None:
        self._paused = False
        self._watchdog.since = time.monotonic()
        for host in self._hosts:
            host.hand([{"op": "resume"}])
        if self._waits_to_go:
            self._waits_to_go = False
            self._begin()
        elif self._to_probe and self._prober is None:
            self._probe_first()

    def _settle(self) -> None:
        try:
            self._book.settle(**self._now())
        except JournalError as error:
            self.notices.append(str(error))
            self._dispatch.stop(Stop("journal", str(error)))
            self._book.settle(**self._now())

    def _now(self) -> dict[str, int | str | None]:
        """Where the runs under way are."""
        dispatch = self._dispatch
        where = {"in_flight": dispatch.in_flight, "retrying": dispatch.retrying, "held": dispatch.held}
        return {**where, "held_by": self._permits.held_by}

    def _end(self) -> None:
        """End the hosts and close the journal. What they said last counts, what is still in flight stays pending."""
        self._hosts.close()
        self._log.bound()
        for message in () if self._broken else self._left():
            if isinstance(message, Submit | Heard):
                self._handle(message)
        stopped = self.stopped
        self._dispatch.abandon(stopped.text if stopped is not None and stopped.reason != "closed" else "interrupted")
        if self._dispatch.came_to_its_end:
            self._book.decided()
        self._settle()
        if (wrong := self._book.discrepancy(self._dispatch.known)) is not None:
            self.notices.append(wrong)
            self._dispatch.stopped = Stop("systemic", wrong)
        self._close_book()

    def _close_book(self) -> None:
        try:
            self._book.close()
        except JournalError as error:
            self.notices.append(str(error))

    # -- what hosts say ----------------------------------------------------------------------------------

    def _heard(self, host: Host, event: HostEvent, raw: bytes) -> None:
        match event["ev"]:
            case "ready":
                self._became_ready(host, event)
            case "refused":
                self._refuse(CodeError(event["error"], event["details"]))
            case "probed":
                self._probed(ModelTag(event["model_tag"]), event["error"])
            case "throttled":
                self._hosts.throttled(host, event["wait_s"])
            case "ask":
                self._permits.ask(host, event, self._dispatch.flights.get(RunId.of(event)))
            case "answered":
                self._permits.answered(host, event["id"], event["usage"])
            case "unused":
                self._permits.unused(host, event["id"])
            case "dropped":
                for key in event["runs"]:
                    self._dispatch.dropped(Key.of(key))
            case _:
                self._dispatch.heard(host, event, raw)

    def _became_ready(self, host: Host, event: ReadyEvent) -> None:
        self._hosts.became_ready(host)
        if host.part != "host":
            return
        if self._to_probe and self._prober is None and not self._paused:
            self._probe(host)
        if self._loaded.is_set():
            return
        self._book.loaded(tuple(event["scorers"]), event["digests"])
        self._dispatch.sync = frozenset(event["sync"])
        if event["sync"]:
            self._hosts.start_scorers()
        self._loaded.set()

    def _refuse(self, error: CodeError | HostError) -> None:
        """The code does not load. Where it did before, it is its hosts that cannot be had any more."""
        self._hosts.give_up(str(error))
        if not self._loaded.is_set():
            self._refused = error
            self._dispatch.stop(Stop("systemic", str(error)))
            self._loaded.set()

    def _died(self, host: Host, how: str) -> None:
        if not self._loaded.is_set() and not self._hosts.closing:
            self._refuse(HostError(self._hosts.start_failure(how)))
        if host is self._prober:
            self._prober = None
        self._permits.died(host)
        self._dispatch.died(host, how)
        self._hosts.replace(host)

    # -- before the first run ----------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._paused:
            self._waits_to_go = True
            return
        self._to_probe = list(self.job.probes)
        self._dispatching = not self._to_probe
        if self._dispatching:
            return
        self._probe_first()

    def _probe_first(self) -> None:
        """Let the first host that is ready probe; where none is, the one that will be."""
        for host in [host for host in self._hosts.rolling if host.ready][:1]:
            self._probe(host)

    def _probe(self, host: Host) -> None:
        self._prober = host
        for _ in self._to_probe:
            self._permits.probed(time.monotonic())
        host.hand([{"op": "probe", "model_tag": str(tag)} for tag in self._to_probe])

    def _probed(self, tag: ModelTag, error: str | None) -> None:
        if tag not in self._to_probe:
            return  # of a host that died meanwhile
        self._to_probe.remove(tag)
        if error is not None and tag is ModelTag.BASELINE:
            self._dispatch.stop_baseline(f"the probe failed: {error}")
        elif error is not None:
            self._dispatch.stop(Stop("systemic", f"the probe failed: {error}"))
        if not self._to_probe:
            self._prober, self._dispatching = None, True
