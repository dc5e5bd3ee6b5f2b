"""The engine: one thread that owns an eval run's state and turns runs into records, through engine hosts.

Everyone else (pytest's main thread, the hosts' readers) only posts messages to it, and `every` hears of each run that
is done, once, after the journal holds it; so there is no lock on its state. There is no event loop here either.

A run is queued, handed to a host ahead of its turn, begun there (from then on it may cost money), rolled out, scored,
done. What a host that died had begun is rolled out once more, one at a time, in a quarantine host; what takes that down
too was the culprit. What is in the journal is never rolled out again, only scored: by the same rule where it was being
scored when its host died.
"""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.flight import Flight
from pytest_osmosis.engine.job import Job, Progress, Transcript
from pytest_osmosis.engine.line import Died, Heard, Line
from pytest_osmosis.engine.systemic import Systemic
from pytest_osmosis.errors import CodeError, DatasetError, HostError, JournalError
from pytest_osmosis.host.protocol import Key, Setup
from pytest_osmosis.host.redaction import Redaction, secrets_of
from pytest_osmosis.journal import Journal, encode
from pytest_osmosis.outcomes import Outcome
from pytest_osmosis.plan import run_seed
from pytest_osmosis.records import Ledger, Run, RunRecord

StopReason = Literal["systemic", "max_errors", "maxfail", "interrupt", "journal", "closed"]

START_S = 300.0
"""A host that has not loaded its code after this long is ended."""
SILENCE_SLACK_S = 30.0
"""A host that says nothing for as long as its code may take, and this, is ended: no deadline of its own worked."""
SCORER_CREDITS = 8
MAX_STARTS = 3
"""So many hosts in a row that die before they are ready stop the eval."""
CLOSE_S = 3.0
"""A host that is told to close is ended after this long."""


class Submit(NamedTuple):
    runs: Sequence[Run]


class Go(NamedTuple):
    pass


class Stop(NamedTuple):
    reason: StopReason
    text: str


class Pause(NamedTuple):
    pass


class Resume(NamedTuple):
    pass


class Close(NamedTuple):
    grace_s: float


Message = Submit | Go | Stop | Pause | Resume | Close | Heard | Died


class Engine:
    """Runs one eval. Every public method may be called from any thread; `every` is called from the engine's own."""

    def __init__(self, job: Job, journal: Journal, every: Callable[[Run, Outcome], None]) -> None:
        self.job = job
        self.judging = job.judging
        self.ledger = Ledger()
        self.progress = Progress()
        self.stopped: Stop | None = None
        self.notices: list[str] = []
        self._every = every
        self._journal = journal
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._loaded = threading.Event()
        self._refused: CodeError | HostError | None = None
        self._redaction = Redaction(secrets_of(job.setup, job.environ))
        self._known: set[Run] = set()
        self._queue: deque[Run] = deque()
        self._flights: dict[Run, Flight] = {}
        self._suspects: deque[Flight] = deque()
        self._unjudged: deque[Flight] = deque()
        self._unscored: deque[Flight] = deque()
        self._journal_lines: list[bytes] = []
        self._told: list[tuple[Run, Outcome]] = []
        self._main: Line | None = None
        self._quarantine: Line | None = None
        self._scorer: Line | None = None
        self._retired: set[Line] = set()
        self._ready: set[Line] = set()
        self._heard_at: dict[Line, float] = {}
        self._failed_starts = 0
        self._sync: frozenset[str] = frozenset()
        self._probing = False
        self._given_up = False
        self._dispatching = False
        self._paused = False
        self._waits_to_go = False
        self._journal_works = True
        self._systemic = Systemic(job.batch_size)
        self._row: Row | None = None
        self._closing: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="osmosis-engine", daemon=True)

    # -- for everyone ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the host, which loads the user's code. Nothing is asked of a model before `go`."""
        self._thread.start()

    def loaded(self) -> None:
        """Wait until the user's code is loaded. `CodeError` or `HostError` where it cannot be."""
        self._loaded.wait()
        if self._refused is not None:
            raise self._refused

    def go(self) -> None:
        """Probe the model, then roll out what is submitted."""
        self._inbox.put(Go())

    def submit(self, runs: Iterable[Run]) -> None:
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

    def close(self, grace_s: float = 0.0) -> None:
        """Give what is in flight `grace_s`, then end hosts, journal and thread. Idempotent."""
        self._inbox.put(Close(grace_s))
        if self._thread.ident is not None:
            self._ended.wait()  # not join(): once Ctrl-C has interrupted that, it never waits again

    def kill(self) -> None:
        """End the hosts now, so that `close` has nothing to wait for."""
        for line in self._lines():
            line.kill()

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._fail(error)
        try:
            self._end()
        finally:
            self._loaded.set()
            self._ended.set()

    def _work(self) -> None:
        try:
            self._main = self._spawn("host", self.job.setup)
        except HostError as error:
            self._refuse(error)
        while self._closing is None or (self._flights and time.monotonic() < self._closing):
            self._turn()

    def _fail(self, error: Exception) -> None:
        """The engine itself is broken: nobody must wait for it. What it knows is kept, the rest stays pending."""
        self.notices.append("".join(traceback.format_exception(error)))
        text = f"the engine failed: {type(error).__name__}: {error}"
        self._refused = self._refused or HostError(text)
        self.kill()
        self._stop(Stop("systemic", text))

    def _turn(self) -> None:
        """Handle what has arrived, refill the hosts, write the journal, and only then say what is done."""
        for message in self._arrived():
            self._handle(message)
        self._look_after_lines()
        self._dispatch()
        self._report()

    def _arrived(self) -> list[Message]:
        try:
            messages = [self._inbox.get(timeout=0.25)]
            while not self._inbox.empty():
                messages.append(self._inbox.get())
        except queue.Empty:
            return []
        return messages

    def _handle(self, message: Message) -> None:
        match message:
            case Submit(runs):
                self._submitted(runs)
            case Go():
                self._begin()
            case Heard(line, events):
                self._heard_at[line] = time.monotonic()
                for event, raw in events:
                    self._event(line, event, raw)
            case Died(line, status):
                self._died(line, exit_text(status))
            case Stop():
                self._stop(message)
            case Pause():
                self._pause()
            case Resume():
                self._resume()
            case Close(grace_s):
                self._stop(Stop("closed", "the session ended"))
                self._closing = time.monotonic() + grace_s

    def _pause(self) -> None:
        self._paused = True
        for line in self._lines():
            line.send([{"op": "pause"}])

    def _resume(self) -> None:
        self._paused = False
        for line in self._lines():
            self._heard_at[line] = time.monotonic()
            line.send([{"op": "resume"}])
        if self._waits_to_go:
            self._waits_to_go = False
            self._begin()

    def _submitted(self, runs: Sequence[Run]) -> None:
        new = [run for run in runs if run not in self._known]
        self._known.update(new)
        self.progress = replace(self.progress, submitted=len(self._known))
        if self.stopped is None:
            self._queue.extend(new)
        else:
            for run in new:
                self._skip(run, self.stopped.text)

    def _end(self) -> None:
        """End the hosts and close the journal; what is still in flight stays pending."""
        reason = self.stopped.text if self.stopped is not None and self.stopped.reason != "closed" else "interrupted"
        for flight in list(self._flights.values()):
            self._skip(flight.run, reason)
        lines = self._lines()
        for line in lines:
            line.send([{"op": "close"}])
        until = time.monotonic() + CLOSE_S
        for line in lines:
            if not line.join(max(0.0, until - time.monotonic())):
                line.kill()
                line.join(CLOSE_S)
        self._report()
        try:
            self._journal.close()
        except JournalError as error:
            self.notices.append(str(error))

    # -- hosts' lives ------------------------------------------------------------------------------------

    def _lines(self) -> list[Line]:
        lines = (self._main, self._quarantine, self._scorer, *self._retired)
        return [line for line in lines if line is not None]

    def _spawn(self, name: str, setup: Setup) -> Line:
        log = self.job.run_dir / "host.log"
        line = self.job.spawn(name, setup, environ=self.job.environ, log=log, post=self._inbox.put)
        self._heard_at[line] = time.monotonic()
        return line

    def _respawn(self, name: str, setup: Setup) -> Line | None:
        """A host in place of one that died; None where no more can be had."""
        if self._closing is not None or self._refused is not None or self._given_up:
            return None
        try:
            return self._spawn(name, setup)
        except HostError as error:
            self._give_up(str(error))
            return None

    def _look_after_lines(self) -> None:
        """End hosts that do not become ready, do not close, or say nothing though no code may take so long."""
        if self._paused:
            return
        now = time.monotonic()
        for line in self._lines():
            allowed_s = self._patience_s(line)
            if allowed_s is not None and now - self._heard_at[line] > allowed_s:
                self.notices.append(f"an engine host said nothing for {allowed_s:.0f} s and was ended")
                self._heard_at[line] = now
                line.kill()

    def _patience_s(self, line: Line) -> float | None:
        """How long a host may say nothing; None for one that has nothing to say."""
        setup = self.job.setup
        if line in self._retired:
            return CLOSE_S
        if line not in self._ready:
            return START_S
        if line is self._scorer:
            busy, code_s = any(flight.sync == "handed" for flight in self._flights.values()), setup.grader_timeout_s
        else:
            busy = any(flight.line is line and flight.begun for flight in self._flights.values())
            code_s = max(setup.agent_timeout_s, setup.grader_timeout_s)
        return code_s + SILENCE_SLACK_S if busy else None

    def _died(self, line: Line, how: str) -> None:
        was_ready = line in self._ready
        self._ready.discard(line)
        self._retired.discard(line)
        self._heard_at.pop(line, None)
        if not was_ready and self._closing is None:
            self._start_failed(how)
        if line is self._scorer:
            self._scorer = None
            self._scorer_died(line, how)
        elif line is self._quarantine:
            self._quarantine = None
            self._quarantine_died(line, how)
            self._limit_main()
        elif line is self._main:
            self._main = None
            self._main_died(line, how)

    def _start_failed(self, how: str) -> None:
        self._failed_starts += 1
        text = f"an engine host ended while it loaded the code ({how}); its log is {self.job.run_dir / 'host.log'}"
        if not self._loaded.is_set():
            self._refuse(HostError(text))
        elif self._failed_starts >= MAX_STARTS:
            self._give_up(text)

    def _refuse(self, error: CodeError | HostError) -> None:
        """The code does not load. Where it did before, it is its hosts that cannot be had any more."""
        if self._loaded.is_set():
            self._give_up(str(error))
            return
        self._refused = error
        self._stop(Stop("systemic", str(error)))
        self._loaded.set()

    def _give_up(self, text: str) -> None:
        """No host can be had any more: what is under way is not measured, the rest stays pending."""
        self._given_up = True
        begun = [flight for flight in self._flights.values() if flight.begun or flight in self._suspects]
        for flight in begun:
            if flight.rolled:
                self._synthesize_scores(flight, self._left(flight), text)
            else:
                self._synthesize_rollout(flight, "host", text)
        self._stop(Stop("systemic", text))
        for flight in list(self._flights.values()):
            self._skip(flight.run, text)

    def _main_died(self, line: Line, how: str) -> None:
        """Unbegun runs are queued again, begun ones go to quarantine."""
        flights = [flight for flight in self._flights.values() if flight.line is line]
        for flight in reversed([flight for flight in flights if not flight.begun]):
            self._requeue(flight)
        again = [flight for flight in flights if flight.begun and not flight.rolled]
        if again and self.stopped is None:
            runs = f"{len(again)} run{'s' if len(again) != 1 else ''}"
            self.notices.append(f"an engine host ended ({how}) with {runs} in flight, rolled out once more")
        for flight in flights:
            if flight.rolled:
                self._unwatched(flight)
            elif flight.begun:
                self._suspect(flight)
        self._main = self._respawn("host", replace(self.job.setup, limit=max(1, self._main_limit())))

    def _requeue(self, flight: Flight) -> None:
        del self._flights[flight.run]
        if self.stopped is None:
            self._queue.appendleft(flight.run)
        else:
            self._skip(flight.run, self.stopped.text)

    def _suspect(self, flight: Flight) -> None:
        """Put a run that was begun in a host that died in line for quarantine."""
        flight.line, flight.begun = None, False
        if self.stopped is not None:
            self._skip(flight.run, "its host ended, and nothing new is begun")
        else:
            flight.attempt += 1
            self.progress = replace(self.progress, again=self.progress.again + 1)
            self._suspects.append(flight)

    def _unwatched(self, flight: Flight) -> None:
        """The host died in which a run waited for its asynchronous scores, or was given one: it gets them elsewhere."""
        flight.line = None
        if flight.judging is None:
            self._unjudged.append(flight)
        else:
            flight.judging = None
            self._suspects.append(flight)

    def _quarantine_died(self, line: Line, how: str) -> None:
        """The one run that was begun there has taken down its second host: it was the culprit."""
        text, details = f"ended its process twice ({how})", line.last_words()
        for flight in [flight for flight in self._flights.values() if flight.line is line]:
            flight.line = None
            if flight.rolled:
                judging, flight.judging = flight.judging, None
                if judging is not None:
                    self._synthesize_scores(flight, [judging], text, details)
                if flight.run in self._flights and self._async_left(flight):
                    self._unjudged.append(flight)
            elif flight.begun:
                self._synthesize_rollout(flight, "agent", text, details)
            else:
                self._suspects.appendleft(flight)

    def _scorer_died(self, line: Line, how: str) -> None:
        """Every run that it had is scored by a new one, but for a function that took down its second scorer."""
        self._scorer = self._respawn("scorer", self._scorer_setup())
        for flight in [flight for flight in self._flights.values() if flight.sync == "handed"]:
            running, flight.running = flight.running, None
            if running in flight.accused:
                text = f"ended its process twice ({how})"
                self._synthesize_scores(flight, [running], text, line.last_words())
            elif running is not None:
                flight.accused.add(running)
            if flight.run in self._flights and self._sync_left(flight):
                flight.sync = "queued"
                self._unscored.appendleft(flight)

    def _scorer_setup(self) -> Setup:
        return replace(self.job.setup, role="score", limit=1)

    # -- what hosts say ----------------------------------------------------------------------------------

    def _event(self, line: Line, event: Mapping[str, Any], raw: bytes) -> None:
        match event["ev"]:
            case "ready":
                self._became_ready(line, event)
            case "refused":
                self._refuse(CodeError(event["error"], event["details"]))
            case "probed":
                self._probed(event["error"])
            case "dropped":
                for row, run, attempt in event["runs"]:
                    self._dropped(Key(row, run, attempt))
            case _:
                flight = self._flights.get(Run(event["row"], event["run"]))
                if flight is not None and flight.attempt == event["attempt"]:
                    self._flight_event(line, flight, event, raw)
                elif event["ev"] == "stalled":
                    line.kill()  # a task that a run left behind holds the loop

    def _flight_event(self, line: Line, flight: Flight, event: Mapping[str, Any], raw: bytes) -> None:
        match event["ev"]:
            case "start":
                flight.begun = True
                self._record(event, raw)
            case "rollout":
                self._rolled(flight, event, raw)
            case "scoring":
                self._runs(line, flight, event["name"])
            case "score":
                self._runs(line, flight, None)
                self._scored(flight, event, raw)
            case "stalled":
                self._stalled(line, flight, event["stack"])
            case "broken":
                self._broken(line, flight, event["error"])

    def _runs(self, line: Line, flight: Flight, name: str | None) -> None:
        """Note which function scores a run now, in that host."""
        if line is self._scorer:
            flight.running = name
        else:
            flight.judging = name

    def _became_ready(self, line: Line, event: Mapping[str, Any]) -> None:
        self._ready.add(line)
        self._failed_starts = 0
        if line is not self._main:
            return
        if self._probing:
            line.send([{"op": "probe"}])
        if self._loaded.is_set():
            return
        self.judging = replace(self.judging, scorers=tuple(event["scorers"]))
        self._sync = frozenset(event["sync"])
        loaded = {"ev": "loaded", "scorers": list(event["scorers"]), "digest": event["digest"]}
        self._record(loaded, encode(loaded))
        if self._sync:
            self._scorer = self._respawn("scorer", self._scorer_setup())
        self._loaded.set()

    def _begin(self) -> None:
        if self._paused:
            self._waits_to_go = True
            return
        if not self.job.probe:
            self._dispatching = True
            return
        self._probing = True
        if self._main is not None and self._main in self._ready:
            self._main.send([{"op": "probe"}])

    def _probed(self, error: str | None) -> None:
        self._probing, self._dispatching = False, True
        if error is not None:
            self._stop(Stop("systemic", f"the probe failed: {error}"))

    def _dropped(self, key: Key) -> None:
        flight = self._flights.get(Run(key.row, key.run))
        if flight is not None and flight.key == key and not flight.begun:
            self._skip(flight.run, self.stopped.text if self.stopped else "dropped")

    def _rolled(self, flight: Flight, event: Mapping[str, Any], raw: bytes) -> None:
        record = self._record(event, raw)
        flight.rolled = True
        flight.messages = event["messages"]
        flight.details = event.get("details", "")
        flight.heard(event.get("output", {}))
        self.progress = replace(self.progress, tokens=self.progress.tokens + (record.tokens or 0))
        cause = self._systemic.saw(event)
        if cause is not None:
            self._stop(Stop("systemic", cause))
        if record.boundary is not None:
            self._done(flight, record)
            return
        if not self._async_left(flight):
            flight.line = None
        if self._sync:
            flight.sync = "queued"
            self._unscored.append(flight)

    def _scored(self, flight: Flight, event: Mapping[str, Any], raw: bytes) -> None:
        record = self._record(event, raw)
        flight.heard(event["output"])
        flight.details = flight.details or next((e["details"] for e in event["errors"].values()), "")
        if not self._async_left(flight):
            flight.line = None
        if not self._sync_left(flight):
            flight.sync = "none"
        if record.scored:
            self._done(flight, record)

    def _stalled(self, line: Line, flight: Flight, stack: str) -> None:
        """User code that cannot be interrupted: the culprit is known, its host goes."""
        text = "took too long and could not be interrupted"
        if line is self._scorer or flight.rolled:
            name = flight.running if line is self._scorer else flight.judging
            self._runs(line, flight, None)
            self._synthesize_scores(flight, [name] if name is not None else [], text, stack)
        else:
            self._synthesize_rollout(flight, "timeout", text, stack)
        line.kill()

    def _broken(self, line: Line, flight: Flight, error: str) -> None:
        """A host failed at a run by its own fault."""
        if not flight.rolled:
            self._synthesize_rollout(flight, "host", error)
        elif line is self._scorer:
            self._synthesize_scores(flight, self._sync_left(flight), error)
        else:
            self._synthesize_scores(flight, self._async_left(flight), error)

    def _left(self, flight: Flight) -> list[str]:
        """Names that have neither a score nor an error yet."""
        record = self.ledger.records[flight.run]
        if record.removed:
            return []
        return [n for n in self.judging.scorers if n not in record.scores and n not in record.scorer_errors]

    def _sync_left(self, flight: Flight) -> list[str]:
        return [name for name in self._left(flight) if name in self._sync]

    def _async_left(self, flight: Flight) -> list[str]:
        return [name for name in self._left(flight) if name not in self._sync]

    def _synthesize_rollout(self, flight: Flight, boundary: str, error: str, details: str = "") -> None:
        """The `rollout` event of a run whose host can no longer write it."""
        event = {
            "ev": "rollout",
            **flight.key._asdict(),
            "ms": 0.0,
            "messages": list(flight.row.messages),
            "boundary": boundary,
            "error": error,
            "details": details,
        }
        self._rolled(flight, *self._without_secrets(event))

    def _synthesize_scores(self, flight: Flight, names: Sequence[str], error: str, details: str = "") -> None:
        """The `score` event of scorers whose process can no longer write it."""
        errors = {name: {"message": error, "details": details} for name in names}
        event = {
            "ev": "score",
            **flight.key._asdict(),
            "ms": 0.0,
            "scores": {},
            "errors": errors,
            "output": {},
        }
        self._scored(flight, *self._without_secrets(event))

    def _without_secrets(self, event: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
        """An event as it comes from a host: parsed, and its line."""
        line = self._redaction.event(event)
        return json.loads(line), line.encode("ascii") + b"\n"

    # -- what goes out -----------------------------------------------------------------------------------

    def _record(self, event: Mapping[str, Any], raw: bytes) -> RunRecord:
        """Put an event into the journal (with this turn's others) and into the ledger."""
        self._journal_lines.append(raw)
        return self.ledger.apply(event) or NO_RECORD

    def _done(self, flight: Flight, record: RunRecord) -> None:
        self._forget(flight)
        unmeasured = record.status != "skipped" and not self.judging.measured(record)
        self.progress = replace(
            self.progress,
            done=self.progress.done + 1,
            passed=self.progress.passed + self.judging.passed(record),
            unmeasured=self.progress.unmeasured + unmeasured,
        )
        if self.progress.unmeasured > self.job.max_errors:
            text = f"more than max_errors ({self.job.max_errors:g}) runs could not be measured"
            self._stop(Stop("max_errors", text))
        output = tuple(flight.output.items())
        transcript = Transcript(flight.messages, flight.details, output, flight.row.line)
        self._told.append((flight.run, self.job.describe(record, self.judging, transcript)))

    def _skip(self, run: Run, reason: str) -> None:
        flight = self._flights.get(run)
        if flight is not None:
            self._forget(flight)
        event = {"ev": "skip", "row": run.row, "run": run.run, "reason": reason}
        record = self._record(event, encode(event))
        self._told.append((run, self.job.describe(record, self.judging, Transcript())))

    def _forget(self, flight: Flight) -> None:
        del self._flights[flight.run]
        for waiting in (self._unscored, self._unjudged, self._suspects):
            if flight in waiting:
                waiting.remove(flight)

    def _report(self) -> None:
        """Everything of this turn in one write to the journal, then to those who asked for it."""
        in_flight = sum(flight.begun and not flight.rolled for flight in self._flights.values())
        self.progress = replace(self.progress, in_flight=in_flight)
        lines, self._journal_lines = b"".join(self._journal_lines), []
        if lines and self._journal_works:
            try:
                self._journal.append(lines)
            except JournalError as error:
                self._journal_works = False  # more would follow half a line
                self.notices.append(str(error))
                self._stop(Stop("journal", str(error)))
        told, self._told = self._told, []
        for run, outcome in told:
            self._every(run, outcome)

    def _stop(self, stop: Stop) -> None:
        if self.stopped is not None:
            return
        self.stopped = stop
        runs = [*(flight.run for flight in self._suspects if not flight.rolled), *self._queue]
        self._queue.clear()
        for run in runs:
            self._skip(run, stop.text)
        for line in self._lines():
            line.send([{"op": "drop"}])

    def _dispatch(self) -> None:
        """Refill the hosts: quarantine one at a time, the main one ahead of its turn, the scorer a few."""
        if self._paused:
            return
        if self._dispatching and self._closing is None:
            self._refill_quarantine()
            self._refill_main()
        self._refill_judges()
        self._refill_scorer()

    def _main_limit(self) -> int:
        """What the main host may have in flight: a run in quarantine counts too."""
        return self.job.batch_size - (1 if self._quarantine is not None else 0)

    def _limit_main(self) -> None:
        if self._main is not None:
            self._main.send([{"op": "limit", "limit": self._main_limit()}])

    def _refill_main(self) -> None:
        """Hand out what the host can begin, and a little more, so that no slot waits for a round trip.

        Runs that wait for a retry have no slot, so more may be begun than `limit`. Nothing is handed out while scoring
        cannot keep up, as transcripts would pile up.
        """
        line, limit = self._main, self._main_limit()
        if line is None or line not in self._ready or limit < 1 or not self._queue:
            return
        rolling = [flight for flight in self._flights.values() if flight.line is line and not flight.rolled]
        if len(self._flights) - len(rolling) > 4 * limit + 64:
            return
        begun = sum(flight.begun for flight in rolling)
        room = max(limit, begun) + max(2, limit // 2) - len(rolling)
        requests = []
        while room > 0 and self._queue:
            flight = self._flight(self._queue.popleft())
            if flight is not None:
                flight.line = line
                requests.append(self._run_request(flight))
                room -= 1
        self._hand(line, requests)

    def _refill_judges(self) -> None:
        """Let the main host score what another one left."""
        line = self._main
        if line is None or line not in self._ready:
            return
        requests = []
        while self._unjudged:
            flight = self._unjudged.popleft()
            flight.line = line
            requests.append(self._score_request(flight, self._async_left(flight)))
        self._hand(line, requests)

    def _refill_quarantine(self) -> None:
        line = self._quarantine
        if line is None and self._suspects:
            self._quarantine = self._respawn("quarantine", replace(self.job.setup, limit=1))
            self._limit_main()
        if line is None or line not in self._ready or any(f.line is line for f in self._flights.values()):
            return
        if not self._suspects:
            self._retire(line)
            return
        flight = self._suspects.popleft()
        flight.line, flight.begun = line, flight.rolled
        if flight.rolled:
            self._hand(line, [self._score_request(flight, self._async_left(flight))])
        else:
            self._hand(line, [self._run_request(flight)])

    def _retire(self, line: Line) -> None:
        """Nothing is left for the quarantine."""
        line.send([{"op": "close"}])
        self._heard_at[line] = time.monotonic()
        self._retired.add(line)
        self._quarantine = None
        self._limit_main()

    def _refill_scorer(self) -> None:
        line = self._scorer
        if line is None or line not in self._ready or not self._unscored:
            return
        handed = sum(flight.sync == "handed" for flight in self._flights.values())
        requests = []
        while self._unscored and handed < SCORER_CREDITS:
            flight = self._unscored.popleft()
            flight.sync = "handed"
            handed += 1
            requests.append(self._score_request(flight, self._sync_left(flight)))
        self._hand(line, requests)

    def _hand(self, line: Line, requests: Sequence[Mapping[str, Any]]) -> None:
        """Give a host something to do, and its time for it."""
        if requests:
            self._heard_at[line] = time.monotonic()
            line.send(requests)

    def _flight(self, run: Run) -> Flight | None:
        """A queued run with its row; None, and the run failed, where the row cannot be read any more."""
        try:
            if self._row is None or self._row.row_index != run.row:
                self._row = self.job.dataset.row(run.row)
        except DatasetError as error:
            flight = self._flights[run] = Flight(run, Row(run.row, [], None, {}, 0))
            self._synthesize_rollout(flight, "host", f"its row cannot be read any more: {error}")
            return None
        flight = self._flights[run] = Flight(run, self._row)
        return flight

    def _run_request(self, flight: Flight) -> dict[str, Any]:
        return {
            "op": "run",
            **flight.key._asdict(),
            "prompt": flight.row.messages,
            "ground_truth": flight.row.ground_truth,
            "record": flight.row.record,
            "seed": run_seed(self.job.seed, flight.run) if self.job.seed is not None else None,
        }

    def _score_request(self, flight: Flight, names: Sequence[str]) -> dict[str, Any]:
        return {
            "op": "score",
            **flight.key._asdict(),
            "names": list(names),
            "messages": flight.messages,
            "ground_truth": flight.row.ground_truth,
            "record": flight.row.record,
        }


NO_RECORD = RunRecord(Run(-1, -1))
"""Stands for the record of an event that belongs to no run."""


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
