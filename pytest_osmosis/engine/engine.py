"""The engine of an eval run, for all other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pytest_osmosis.engine.engine_loop import Close, EngineLoop, LoadedCode, Submit
from pytest_osmosis.engine.job import Job
from pytest_osmosis.errors import CodeError
from pytest_osmosis.record.journal import Journal
from pytest_osmosis.record.lifecycle import Stop, StopReason
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunCounts
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule


class Engine:
    """Runs one eval. Every method may be called from any thread.

    `every` is called from the engine's own thread, once for each run that is done or skipped, after the journal
    holds it. `kept` counts the reused scores of each function.
    """

    def __init__(self, job: Job, journal: Journal, every: Callable[[RunId, Outcome], None]) -> None:
        self.job = job
        self._loop = EngineLoop(job, journal, every)
        self._limit = job.batch_size
        self.notices = self._loop.notices
        self.ledger = self._loop.recorder.ledger
        self.kept: Mapping[str, int] = self._loop.recorder.kept
        self.throttle = self._loop.hosts.throttle
        self._thread = threading.Thread(target=self._loop.run, name="osmosis-engine", daemon=True)

    @property
    def pass_rule(self) -> PassRule:
        """The rule by which runs pass; complete once `loaded` has returned."""
        return self._loop.recorder.pass_rule

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the header on how the user's code was loaded; complete once `loaded` has returned."""
        return self._loop.notes

    @property
    def code(self) -> LoadedCode:
        """The digests of the code that runs; complete once `loaded` has returned."""
        return self._loop.code

    @property
    def progress(self) -> RunCounts:
        return self._loop.recorder.reports.progress

    @property
    def rescored(self) -> bool:
        """True if all stored rollouts were rescored, and the journal holds it."""
        return self._loop.recorder.is_rescored

    @property
    def stopped(self) -> Stop | None:
        """The reason why no further run begins, None while runs begin."""
        return self._loop.runs.stopped

    @property
    def baseline_stopped(self) -> str | None:
        """The reason why no further run of the baseline begins, None while they begin."""
        return self._loop.runs.baseline_stopped

    @property
    def n_exchanges(self) -> int:
        """The number of requests that were sent and answered, if exchanges are kept."""
        return self._loop.exchanges.n_sent

    @property
    def held_s(self) -> Mapping[str, float]:
        """The seconds for which each limit per minute held back a request."""
        return {**self._loop.permits.held_s, **self._loop.judge_permits.held_s}

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        """Start the hosts, which load the user's code. No request is sent before `go`."""
        self._thread.start()

    def loaded(self) -> None:
        """Wait until the user's code is loaded. Raises `CodeError` or `HostError` if it does not load."""
        self._loop.loaded.wait()
        if self._loop.refused is not None:
            raise self._loop.refused

    @property
    def has_refused_code(self) -> bool:
        """True if the user's code does not load."""
        return isinstance(self._loop.refused, CodeError)

    def go(self) -> None:
        """Probe the models, then roll out what is submitted."""
        self._loop.inbox.put(self._loop.go)

    def submit(self, runs: Iterable[RunId]) -> None:
        """Roll these out, in this order, each once however often it is submitted."""
        self._loop.inbox.put(Submit(list(runs)))

    def limit(self, in_flight: int) -> None:
        """Begin no rollout from now on while `in_flight` others are in flight, at most `batch_size`. Those finish."""
        self._limit = max(0, min(in_flight, self.job.batch_size))
        self._loop.inbox.put(partial(self._loop.hosts.shares.limit, self._limit))

    def grow(self, n_hosts: int) -> None:
        """Start further hosts until there are `n_hosts`, at most `batch_size`, as a cluster has room for more."""
        self._loop.inbox.put(partial(self._loop.hosts.grow, n_hosts))

    @property
    def most_in_flight(self) -> int:
        """The most rollouts that may be in flight now. After `limit` it falls as rollouts end."""
        return 0 if self._loop.ended.is_set() else max(self._limit, self._loop.most_in_flight)

    def stop(self, reason: StopReason, text: str) -> None:
        """Begin no further run; those that had not begun are skipped with the reason `text`. Runs in flight finish."""
        self._loop.inbox.put(Stop(reason, text))

    def pause(self) -> None:
        """Begin no run and no request until `resume`; open requests finish. Idempotent."""
        self._loop.inbox.put(self._loop.pause)

    def resume(self) -> None:
        """Go on after `pause`. Idempotent."""
        self._loop.inbox.put(self._loop.resume)

    def release(self) -> None:
        """Let the hosts end, because all runs that will be submitted are done."""
        self._loop.inbox.put(self._loop.hosts.release)

    def close(self, grace_s: float = 0.0) -> None:
        """Give runs in flight `grace_s`, then end hosts, journal and thread. Idempotent.

        An engine that was not started starts no host for that, and skips what was submitted.
        """
        self._loop.inbox.put(Close(grace_s))
        if not self.is_started:
            self._loop.hosts.closing = True
            self._thread.start()
        self._loop.ended.wait()  # not join(): once Ctrl-C has interrupted that, it never waits again

    def kill(self) -> None:
        """End the hosts now, so that `close` has nothing to wait for."""
        self._loop.hosts.kill()
