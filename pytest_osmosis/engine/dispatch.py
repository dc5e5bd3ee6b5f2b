"""The way of runs through hosts: queued, handed out ahead of its turn, begun, rolled out, scored, done.

What a host that died had begun is rolled out once more, one at a time, in a quarantine host; what takes that down too
was the culprit. What is in the journal is never rolled out again, only scored: by the same rule where it was being
scored when its host died.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack
from io import BufferedReader

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.budget import Budget
from pytest_osmosis.engine.hosts import Host, Hosts
from pytest_osmosis.engine.job import Job, RescoreJob, Stop, Transcript, undecided
from pytest_osmosis.engine.recorder import Recorder
from pytest_osmosis.engine.run_state import RunState
from pytest_osmosis.engine.systemic import Systemic
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.host.protocol import Key, Request, RunEvent, RunRequest, ScoreRequest
from pytest_osmosis.record.events import RewardErrorFields, RolloutEvent, ScoreEvent
from pytest_osmosis.record.plan import run_seed
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import ENDED_TWICE, UNINTERRUPTIBLE
from pytest_osmosis.text.numbers import plural

SCORER_AHEAD_MS = 20.0
MAX_CREDITS = 64
"""A scorer, which scores one run after the other, is handed what keeps it busy for so long, and never more than so many
runs; two at the least, so that it never waits for the next. What takes long stays free for whichever scorer is next."""


class Dispatch:
    """Every run that was submitted and is not done is in `queue` or in `flights`.

    `stopped` says why nothing new is begun, `baseline_stopped` why no run of the baseline is; `sync` names the
    functions that block.
    """

    def __init__(
        self, job: Job, hosts: Hosts, book: Recorder, notices: list[str], alert: Callable[[str], None]
    ) -> None:
        self.queue: deque[RunId] = deque()
        self.flights: dict[RunId, RunState] = {}
        self.sync: frozenset[str] = frozenset()
        self.stopped: Stop | None = None
        self.baseline_stopped: str | None = None
        self._job = job
        self._hosts = hosts
        self._book = book
        self._notices = notices
        self._alert = alert
        self._n_skipped = 0
        self._known: set[RunId] = set()
        self._suspects: deque[RunState] = deque()
        self._unjudged: deque[RunState] = deque()
        self._unscored: deque[RunState] = deque()
        self._systemic = {tag: Systemic(job.batch_size) for tag in ModelTag}
        self._budget = Budget(job.spending, job.cost_usd)
        self._row: Row | None = None
        self._n_not_stored = 0
        eager = job.decided is undecided
        self._most_unscored = 4 * job.batch_size + 64 if eager else job.batch_size

    @property
    def in_flight(self) -> int:
        """Runs that are being rolled out, without those that wait for a retry or a permit."""
        flights = self.flights.values()
        return sum(each.begun and not (each.rolled or each.retrying or each.held) for each in flights)

    @property
    def retrying(self) -> int:
        """Runs that wait for a retry."""
        return sum(flight.begun and not flight.rolled and flight.retrying > 0 for flight in self.flights.values())

    @property
    def held(self) -> int:
        """Runs that wait for a permit."""
        return sum(flight.held > 0 and not flight.retrying for flight in self.flights.values())

    @property
    def known(self) -> Set[RunId]:
        """All that was submitted."""
        return self._known

    @property
    def came_to_its_end(self) -> bool:
        """True where stored rollouts are scored again, and every one that there is was."""
        again = self._job.again
        return again is not None and again.whole and self._book.n_done + self._n_not_stored == self._job.n_runs

    def submit(self, runs: Sequence[RunId]) -> None:
        """Queue what is new."""
        new = [run for run in runs if run not in self._known]
        self._known.update(new)
        self._book.count(submitted=len(new))
        for run in new:
            why = self._never(run)
            if why is None:
                self.queue.append(run)
            else:
                self._skip(run, why)

    def _never(self, run: RunId) -> str | None:
        """Why a run will not be begun any more, None where it will."""
        if self.stopped is not None:
            return self.stopped.text
        return self.baseline_stopped if run.is_baseline else None

    def look_at_time(self, now: float) -> None:
        """Stop where the eval has run for as long as it may; called from its first rollout on."""
        reached = self._budget.at(now)
        if reached is not None and self._waits:
            self.stop(reached)

    @property
    def _waits(self) -> bool:
        """True where a run is left to begin."""
        if self.queue or self._book.n_done + self._n_skipped + len(self.flights) < self._job.n_runs:
            return True
        return any(not flight.begun for flight in self.flights.values())

    def stop(self, stop: Stop) -> None:
        """Begin nothing more; what was not begun is skipped."""
        if self.stopped is not None:
            return
        self.stopped = stop
        self._skip_unbegun(baseline=False)

    def stop_baseline(self, text: str) -> None:
        """Ask the baseline's model no more; the eval goes on."""
        if self.baseline_stopped is not None or self.stopped is not None:
            return
        self.baseline_stopped = text
        self._alert(f"the baseline's model is asked no more: {text}")
        self._skip_unbegun(baseline=True)

    def _skip_unbegun(self, *, baseline: bool) -> None:
        """What was not begun is skipped: all of it, or the baseline's alone."""
        suspects = [flight.run for flight in self._suspects if not flight.rolled]
        skipped = [run for run in (*suspects, *self.queue) if run.is_baseline or not baseline]
        self.queue = deque(run for run in self.queue if baseline and not run.is_baseline)
        for run in skipped:
            self._skip(run, self._never(run) or "")
        self._hosts.broadcast({"op": "drop", "model_tag": str(ModelTag.BASELINE) if baseline else None})

    def give_up(self, reason: str, submitted: Iterable[RunId] = ()) -> None:
        """The engine is broken: nothing more is done, and nobody waits for what was submitted."""
        self.stopped = self.stopped or Stop("systemic", reason)
        self._known.update(submitted)
        self.queue.clear()
        self.flights.clear()
        self._book.give_up(self._known, reason)

    def abandon(self, reason: str) -> None:
        """Nobody waits any longer for what is still in flight."""
        for flight in list(self.flights.values()):
            self._skip(flight.run, reason)

    def busy(self, host: Host) -> bool:
        """True where a host has something to say sooner or later; one that may do nothing now need not."""
        flights = self.flights.values()
        if host.part == "scorer":
            return any(flight.scorer is host for flight in flights)
        return host.limit > 0 and any(flight.host is host for flight in flights)

    # -- what hosts say ----------------------------------------------------------------------------------

    def heard(self, host: Host, event: RunEvent, raw: bytes) -> None:
        """An event that belongs to a run."""
        flight = self.flights.get(RunId.of(event))
        if flight is None or flight.attempt != event["attempt"]:
            if event["ev"] == "stalled":
                host.line.kill()  # a task that a run left behind holds the loop
            return
        flight.since = time.monotonic()
        match event["ev"]:
            case "start":
                self._hosts.has_begun(host)
                flight.begun = True
                self._book.enter(event, raw)
            case "retry":
                flight.retrying += 1 if event["waits"] else -1
            case "rollout":
                self._rolled(flight, event, raw)
            case "scoring":
                self._hosts.has_begun(host)
                self._runs(host, flight, event["name"])
            case "score":
                host.score_ms += (event["ms"] - host.score_ms) / 8
                self._runs(host, flight, None)
                self._scored(flight, event, raw)
            case "stalled":
                self._stalled(host, flight, event["stack"])
            case "broken":
                self._broken(host, flight, event["boundary"], event["error"])

    def dropped(self, key: Key) -> None:
        """A host gives back what it had not begun."""
        flight = self.flights.get(key.run)
        if flight is not None and flight.key == key and not flight.begun:
            self._skip(flight.run, self._never(flight.run) or "dropped")

    def _runs(self, host: Host, flight: RunState, name: str | None) -> None:
        """Note which function scores a run now, in that host."""
        if host.part == "scorer":
            flight.running = name
        else:
            flight.judging = name

    def _rolled(self, flight: RunState, event: RolloutEvent, raw: bytes) -> None:
        record = self._book.enter(event, raw)
        flight.rolled = True
        flight.messages = event["messages"]
        flight.details = event.get("details", "")
        flight.heard(event.get("output", {}))
        self._book.count(tokens=record.tokens or 0)
        if self._hosts.throttle.pauses and record.boundary is None:
            self._hosts.throttle.finished()
            self._hosts.relimit()
        cause = self._systemic[flight.run.model].saw(event)
        if cause is not None and flight.run.is_baseline:
            self.stop_baseline(cause)
        elif cause is not None:
            self.stop(Stop("systemic", cause))
        elif (reached := self._budget.rolled(record)) is not None and self._waits:
            self.stop(reached)
        if record.boundary is not None:
            self._done(flight)
            return
        if not self._async_left(flight):
            flight.host = None
        if self.sync:
            self._unscored.append(flight)

    def _scored(self, flight: RunState, event: ScoreEvent, raw: bytes) -> None:
        record = self._book.enter(event, raw)
        flight.heard(event["output"])
        flight.details = flight.details or next((e["details"] for e in event["errors"].values()), "")
        if not self._async_left(flight):
            flight.host = None
        if not self._sync_left(flight):
            flight.scorer = None
        if record.scored:
            self._done(flight)

    def _stalled(self, host: Host, flight: RunState, stack: str) -> None:
        """User code that cannot be interrupted: the culprit is known, its host goes."""
        text = UNINTERRUPTIBLE
        if host.part == "scorer" or flight.rolled:
            name = flight.running if host.part == "scorer" else flight.judging
            self._runs(host, flight, None)
            self._no_scores(flight, [name] if name is not None else [], text, stack)
        else:
            self._no_rollout(flight, "timeout", text, stack)
        host.line.kill()

    def _broken(self, host: Host, flight: RunState, boundary: str, error: str) -> None:
        """A host failed at a run by its own fault, or user code cancelled it."""
        if not flight.rolled:
            self._no_rollout(flight, boundary, error)
        elif host.part == "scorer":
            self._no_scores(flight, self._sync_left(flight), error)
        else:
            self._no_scores(flight, self._async_left(flight), error)

    # -- when hosts die ----------------------------------------------------------------------------------

    def died(self, host: Host, how: str) -> None:
        """What becomes of the runs that a dead host had."""
        if host.part == "scorer":
            self._scorer_died(host, how)
        elif host.part == "quarantine":
            self._quarantine_died(host, how)
        else:
            self._rolling_died(host, how)

    def _rolling_died(self, host: Host, how: str) -> None:
        """Unbegun runs are queued again, begun ones go to quarantine."""
        flights = [flight for flight in self.flights.values() if flight.host is host]
        for flight in reversed([flight for flight in flights if not flight.begun]):
            self._requeue(flight)
        again = [flight for flight in flights if flight.begun and not flight.rolled]
        if again and self.stopped is None:
            runs = plural(len(again), "run")
            self._notices.append(f"an engine host ended ({how}) with {runs} in flight, rolled out once more")
        for flight in flights:
            if flight.rolled:
                self._unwatched(flight)
            elif flight.begun:
                self._suspect(flight)

    def _requeue(self, flight: RunState) -> None:
        del self.flights[flight.run]
        why = self._never(flight.run)
        if why is None:
            self.queue.appendleft(flight.run)
        else:
            self._skip(flight.run, why)

    def _suspect(self, flight: RunState) -> None:
        """Put a run that was begun in a host that died in line for quarantine."""
        flight.host, flight.begun, flight.retrying = None, False, 0
        if self._never(flight.run) is not None:
            self._skip(flight.run, "its host ended, and nothing new is begun")
        else:
            flight.attempt += 1
            self._book.count(again=1)
            self._suspects.append(flight)

    def _unwatched(self, flight: RunState) -> None:
        """The host died in which a run waited for its asynchronous scores, or was given one: it gets them elsewhere."""
        flight.host = None
        if flight.judging is None:
            self._unjudged.append(flight)
        else:
            flight.judging = None
            self._suspects.append(flight)

    def _quarantine_died(self, host: Host, how: str) -> None:
        """The one run that was begun there has taken down its second host: it was the culprit."""
        text, details = f"{ENDED_TWICE} ({how})", host.line.last_words()
        for flight in [flight for flight in self.flights.values() if flight.host is host]:
            flight.host = None
            if flight.rolled:
                judging, flight.judging = flight.judging, None
                if judging is not None:
                    self._no_scores(flight, [judging], text, details)
                if flight.run in self.flights and self._async_left(flight):
                    self._unjudged.append(flight)
            elif flight.begun:
                self._no_rollout(flight, "agent", text, details)
            elif (why := self._never(flight.run)) is not None:
                self._skip(flight.run, why)
            else:
                self._suspects.appendleft(flight)

    def _scorer_died(self, host: Host, how: str) -> None:
        """Every run that it had is scored by another, but for a function that took down its second scorer."""
        for flight in [flight for flight in self.flights.values() if flight.scorer is host]:
            running, flight.running = flight.running, None
            if running in flight.accused:
                self._no_scores(flight, [running], f"{ENDED_TWICE} ({how})", host.line.last_words())
            elif running is not None:
                flight.accused.add(running)
            flight.scorer = None
            if flight.run in self.flights and self._sync_left(flight):
                self._unscored.appendleft(flight)

    def _give_up_hosts(self, why: str) -> None:
        """No further host can be had: what needs one that is not there is not measured, what has one goes on."""
        hosts = self._hosts
        lacking = (self._suspects, self._unjudged and not hosts.rolling, self._unscored and not hosts.scorers)
        if not (self._waits or any(lacking)):
            return
        for flight in [*self._suspects]:
            if flight not in self._suspects:
                continue  # one before it was one failure too many, and it was skipped
            if not flight.rolled:
                self._no_rollout(flight, "host", why)
            elif hosts.quarantine is None:
                self._suspects.remove(flight)
                self._no_scores(flight, self._async_left(flight), why)
        self.stop(Stop("systemic", why))
        while self._unjudged and not hosts.rolling:
            flight = self._unjudged.popleft()
            self._no_scores(flight, self._async_left(flight), why)
        while self._unscored and not hosts.scorers:
            flight = self._unscored.popleft()
            self._no_scores(flight, self._sync_left(flight), why)

    # -- what only the engine can say --------------------------------------------------------------------

    def _no_rollout(self, flight: RunState, boundary: str, error: str, details: str = "") -> None:
        """The `rollout` event of a run whose host can no longer write it."""
        event: RolloutEvent = {
            "ev": "rollout",
            **flight.key.to_json(),  # type: ignore[typeddict-item]  # it lacks optional fields
            "ms": 0.0,
            "messages": list(flight.row.messages),
            "boundary": boundary,
            "error": error,
            "details": details,
        }
        self._rolled(flight, *self._book.made(event))

    def _no_scores(self, flight: RunState, names: Sequence[str], error: str, details: str = "") -> None:
        """The `score` event of scorers whose process can no longer write it, if any."""
        if not names:
            return
        errors: dict[str, RewardErrorFields] = {name: {"message": error, "details": details} for name in names}
        event: ScoreEvent = {
            "ev": "score",
            **flight.key.to_json(),
            "ms": 0.0,
            "scores": {},
            "errors": errors,
            "output": {},
        }
        self._scored(flight, *self._book.made(event))

    # -- done --------------------------------------------------------------------------------------------

    def _done(self, flight: RunState) -> None:
        self._forget(flight)
        output = tuple(flight.output.items())
        transcript = Transcript(flight.messages, flight.details, output, flight.row.line)
        record = self._book.ledger.records[flight.run]
        self._book.done(record, transcript)
        decided = None if flight.run.is_baseline else self._job.decided(record, self._book.judging)
        if self._book.unmeasured > self._job.max_errors:
            text = f"more than [limits] max_errors allows ({self._job.max_errors_said}) could not be measured"
            self.stop(Stop("max_errors", text))
        elif decided is not None and self._waits:
            self.stop(Stop("decided", decided))

    def _skip(self, run: RunId, reason: str) -> None:
        if self.stopped is None:  # the eval goes on without it
            self._book.count(submitted=-1)
        self._n_skipped += 1
        flight = self.flights.get(run)
        if flight is not None:
            self._forget(flight)
        self._book.skip(run, reason)

    def _forget(self, flight: RunState) -> None:
        del self.flights[flight.run]
        for waiting in (self._unscored, self._unjudged, self._suspects):
            if flight in waiting:
                waiting.remove(flight)

    def _left(self, flight: RunState) -> list[str]:
        """Names that have neither a score nor an error yet."""
        record = self._book.ledger.records[flight.run]
        if record.removed:
            return []
        scorers = self._book.judging.scorers
        return [name for name in scorers if name not in record.scores and name not in record.scorer_errors]

    def _sync_left(self, flight: RunState) -> list[str]:
        return [name for name in self._left(flight) if name in self.sync]

    def _async_left(self, flight: RunState) -> list[str]:
        return [name for name in self._left(flight) if name not in self.sync]

    # -- handing out -------------------------------------------------------------------------------------

    def refill(self, *, rollouts: bool) -> None:
        """Refill the hosts: quarantine one at a time, the others ahead of their turn, a scorer a few.

        Without `rollouts` only what is rolled out already is scored.
        """
        if rollouts:
            self._refill_quarantine()
        self._hosts.relimit()
        if rollouts and self._job.again is not None:
            self._recall(self._job.again)
        elif rollouts:
            for host in self._hosts.rolling:
                self._refill(host)
        self._refill_judges()
        for host in self._hosts.scorers:
            self._refill_scorer(host)
        if self._hosts.given_up is not None:
            self._give_up_hosts(self._hosts.given_up)

    def _refill(self, host: Host) -> None:
        """Hand out what a host can begin, and more, so that no slot waits for a round trip even where many end at once;
        less where another host might begin it sooner. Few at a time are not worth a message.

        Runs that wait for a retry have no slot, so more may be begun than `limit`. Nothing is handed out while scoring
        cannot keep up, as transcripts would pile up; and where scores may show that no further run is needed.
        """
        limit = host.limit
        if not host.ready or limit < 1 or not self.queue:
            return
        unrolled = [flight for flight in self.flights.values() if not flight.rolled]
        if len(self.flights) - len(unrolled) > self._most_unscored:
            return
        rolling = [flight for flight in unrolled if flight.host is host]
        begun = sum(flight.begun for flight in rolling)
        ahead = max(2, limit if self._job.hosts == 1 else limit // 2)
        room = max(limit, begun) + ahead - len(rolling)
        if room < max(1, ahead // 8):
            return
        self._hosts.paced(host, room)
        requests: list[Request] = []
        for flight in list(self._flights(room)):
            why = self._never(flight.run)  # a row among them that is gone may have ended the eval
            if why is not None:
                self._skip(flight.run, why)
                continue
            flight.host = host
            requests.append(self._run_request(flight))
        host.hand(requests)

    def _recall(self, again: RescoreJob) -> None:
        """Put stored rollouts in line for the functions whose scores of them are not known."""
        gone = [run for run in self.queue if run in again.gone]
        if gone:
            self.queue = deque(run for run in self.queue if run not in again.gone)
            self._n_not_stored += len(gone)
        for run in gone:
            self._skip(run, again.gone[run])
        while self.queue and len(self.flights) < self._most_unscored:
            run = self.queue.popleft()
            try:
                if self._row is None or self._row.row_index != run.row:
                    self._row = self._job.dataset.row(run.row)
            except DatasetError as error:
                self._skip(run, f"its row cannot be read any more: {error}")
                continue
            rollout = again.rollouts.rollout(run)
            flight = self.flights[run] = RunState(run, self._row, rollout["attempt"], begun=True, rolled=True)
            flight.messages, flight.details = rollout["messages"], rollout.get("details", "")
            flight.heard(rollout.get("output", {}))
            codes = {} if again.rescore else self._book.codes
            kept = again.rollouts.scores(run, codes, self._job.contents[run.row].whole)
            record = self._book.recall(again.rollouts.records[run], kept)
            if record.boundary is not None or record.scored:
                self._done(flight)
                continue
            if self._sync_left(flight):
                self._unscored.append(flight)
            if self._async_left(flight):
                self._unjudged.append(flight)

    def _refill_judges(self) -> None:
        """Let hosts that roll out score what another one left, or what is stored, those that have the least."""
        hosts = [host for host in self._hosts.rolling if host.ready]
        if not hosts or not self._unjudged:
            return
        n_given = Counter(flight.host for flight in self.flights.values())
        requests: dict[Host, list[Request]] = {host: [] for host in hosts}
        while self._unjudged:
            flight = self._unjudged.popleft()
            flight.host = min(hosts, key=lambda host: (host.limit < 1, n_given[host] / max(1, host.limit)))
            n_given[flight.host] += 1
            requests[flight.host].append(self._score_request(flight, self._async_left(flight)))
        for host, handed in requests.items():
            host.hand(handed)

    def _refill_quarantine(self) -> None:
        if self._hosts.quarantine is None and self._suspects:
            self._hosts.start_quarantine()
        host = self._hosts.quarantine
        if host is None or not host.ready or any(flight.host is host for flight in self.flights.values()):
            return
        if not self._suspects:
            self._hosts.retire_quarantine()
            return
        flight = self._suspects.popleft()
        flight.host, flight.begun = host, flight.rolled
        if flight.rolled:
            host.hand([self._score_request(flight, self._async_left(flight))])
        else:
            host.hand([self._run_request(flight)])

    def _refill_scorer(self, host: Host) -> None:
        if not host.ready or not self._unscored:
            return
        handed = sum(flight.scorer is host for flight in self.flights.values())
        requests: list[Request] = []
        credits = min(MAX_CREDITS, max(2, int(SCORER_AHEAD_MS / max(host.score_ms, 0.01))))
        while self._unscored and handed < credits:
            flight = self._unscored.popleft()
            flight.scorer = host
            handed += 1
            requests.append(self._score_request(flight, self._sync_left(flight)))
        host.gather_s = SCORER_AHEAD_MS / 2000
        host.hand(requests)

    def _flights(self, room: int) -> Iterator[RunState]:
        """Up to `room` queued runs with their rows. Those whose row cannot be read any more fail, and are left out."""
        with ExitStack() as stack:
            file: BufferedReader | None = None
            while room > 0 and self.queue:
                run = self.queue.popleft()
                try:
                    if self._row is None or self._row.row_index != run.row:
                        file = file or stack.enter_context(self._job.dataset.open())
                        self._row = self._job.dataset.read(file, run.row)
                except DatasetError as error:
                    flight = self.flights[run] = RunState(run, Row(run.row, [], None, {}, 0))
                    self._no_rollout(flight, "host", f"its row cannot be read any more: {error}")
                    continue
                room -= 1
                flight = self.flights[run] = RunState(run, self._row)
                yield flight

    def _run_request(self, flight: RunState) -> RunRequest:
        return {
            "op": "run",
            **flight.key.to_json(),
            "prompt": flight.row.messages,
            "ground_truth": flight.row.ground_truth,
            "record": flight.row.record,
            "seed": run_seed(self._job.seed, flight.run) if self._job.seed is not None else None,
        }

    def _score_request(self, flight: RunState, names: Sequence[str]) -> ScoreRequest:
        return {
            "op": "score",
            **flight.key.to_json(),
            "names": list(names),
            "messages": flight.messages,
            "ground_truth": flight.row.ground_truth,
            "record": flight.row.record,
        }
