"""The order in which the evals of a session run: one after the other, until something stops them.

Entries of one config run together, some at a time, and share one cap on rollouts in flight.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import pytest

from pytest_osmosis.errors import CodeError, HostError
from pytest_osmosis.evals import EvalRun, FinishedEval, finish
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunCounts
from pytest_osmosis.record.stop import StopReason

if TYPE_CHECKING:
    from pytest_osmosis.plugin.debugger import InlineHosts


T = TypeVar("T")
TICK_S = 0.02
"""Shares move at most this often, and are looked at this often until they have moved."""
INTERRUPT_GRACE_S = 2.0
LOG_CHARS = 2000
"""The last characters of a host's log that are shown if it does not start."""
MOST_AT_ONCE = 4
"""The entries of one config that run together, each with hosts of its own. Those of the next one load meanwhile."""


class Group:
    """Evals that run together: the entries of one config, or a single eval. `waiting` have not begun, in order."""

    def __init__(self) -> None:
        self.runs: dict[str, EvalRun] = {}
        self.waiting: deque[str] = deque()
        self.running: set[str] = set()
        self.cap: SharedCap | None = None

    @property
    def most_in_flight(self) -> int:
        """The cap on the rollouts of all: the largest that one of them may have in flight."""
        return max(run.prepared.config.in_flight for run in self.runs.values())

    @property
    def at_once(self) -> int:
        return min(MOST_AT_ONCE, self.most_in_flight)


class EvalQueue:
    """Starts each eval when the one before it is done. `runs` are in order, by eval id; `finished` after `close`.

    An eval whose end raised is not among those that are finished, but in `failures`.

    With `inline` no eval starts by itself: `perform` rolls out what a test waits for.
    """

    def __init__(self, inline: InlineHosts | None) -> None:
        self.runs: dict[str, EvalRun] = {}
        self.finished: dict[str, FinishedEval] = {}
        self.failures: dict[str, Exception] = {}
        self._inline = inline
        self._groups: dict[str, Group] = {}
        self._group_of: dict[str, Group] = {}
        self._n_left: dict[str, int] = {}
        self._begun: set[str] = set()
        self._later: set[str] = set()
        self._lock = threading.RLock()
        self._has_hosts_on_cluster = False
        self._stopped = False
        self._paused = False

    @property
    def together(self) -> list[list[FinishedEval]]:
        """The finished evals of each config with several."""
        groups = [group for group in self._groups.values() if len(group.runs) > 1]
        found = [[self.finished[eval_id] for eval_id in group.runs if eval_id in self.finished] for group in groups]
        return [each for each in found if each]

    def hosts_wait(self, group: str, *, on_cluster: bool) -> bool:
        """Return True if the hosts of the next eval of a group start later, once it is its turn.

        Those of an eval `on_cluster` do, unless it is the first one: its hosts may take all places that there are.
        """
        return self._inline is None and self._loads_later(group, on_cluster)

    def _loads_later(self, group: str, on_cluster: bool) -> bool:
        if on_cluster and self._has_hosts_on_cluster:
            return True
        return group in self._groups and len(self._groups[group].runs) >= MOST_AT_ONCE

    def add(self, eval_id: str, run: EvalRun, group: str, *, on_cluster: bool) -> None:
        """Add an eval. Those with the same `group` run together."""
        self.runs[eval_id] = run
        if self._loads_later(group, on_cluster):
            self._later.add(eval_id)
        self._has_hosts_on_cluster = self._has_hosts_on_cluster or on_cluster
        self._n_left[eval_id] = len(run.selected.runs)
        self._group_of[eval_id] = self._groups.setdefault(group, Group())
        self._group_of[eval_id].runs[eval_id] = run
        self._group_of[eval_id].waiting.append(eval_id)

    def start(self) -> None:
        """Wait until the code of all hosts that started is loaded, then start the first evals.

        Raise `pytest.UsageError` if code does not load, unless it is only that of some environments.
        """
        started = {eval_id: run for eval_id, run in self.runs.items() if eval_id not in self._later}
        errors: dict[str, list[str]] = {}
        for eval_id, run in started.items():
            if self._inline is not None:
                self._inline.host(eval_id).load()
            if error := load_error(run):
                errors.setdefault(error, []).append(eval_id)
        failed = {eval_id for eval_ids in errors.values() for eval_id in eval_ids}
        if failed and not self._are_left_out(failed):
            names = {eval_id: self.runs[eval_id].prepared.config.name for eval_id in failed}
            texts = [f"{', '.join(names[each] for each in eval_ids)}: {error}" for error, eval_ids in errors.items()]
            self.discard()
            raise pytest.UsageError(*texts)
        self._later |= failed  # they are not measured, as those that do not load when it is their turn
        if self._inline is None:
            with self._lock:
                self._begin_next()
            return
        for eval_id, run in self.runs.items():
            if not self._n_left[eval_id]:  # no test will perform anything
                run.go()

    def _are_left_out(self, failed: Collection[str]) -> bool:
        """Return True if the others run without the evals that failed to load, because these are environments."""
        of_environments = all(self.runs[eval_id].prepared.environment is not None for eval_id in failed)
        return of_environments and len(failed) < len(self.runs) and self._inline is None

    def run_done(self, eval_id: str) -> None:
        """Count a run of `eval_id` as done; after its last one another eval starts. Called in the engine's thread."""
        with self._lock:
            self._n_left[eval_id] -= 1
            is_last = self._n_left[eval_id] == 0
        if is_last:
            self.runs[eval_id].stop_clock()
        if self._inline is not None:
            self._inline.host(eval_id).wake()
            return
        cap = self._group_of[eval_id].cap
        if cap is not None:
            cap.changed()
        if is_last:
            with self._lock:
                self._end(eval_id)
                self._begin_next()

    def _begin_next(self) -> None:
        """Begin the evals whose turn it is: of the first group that is not done, as many as may run at once."""
        while not self._stopped:
            group = next((group for group in self._groups.values() if group.waiting or group.running), None)
            if group is None or not group.waiting:
                return
            if len(group.running) >= group.at_once:
                if not self._has_hosts_on_cluster:  # they would take the places of those whose turn it is
                    self.runs[group.waiting[0]].start_hosts()  # which load their code before it is their turn
                return
            self._begin(group, group.waiting.popleft())

    def _begin(self, group: Group, eval_id: str) -> None:
        group.running.add(eval_id)
        if eval_id in self._later:
            threading.Thread(target=self._load, args=(group, eval_id), name="osmosis-load", daemon=True).start()
        else:
            self._go(group, eval_id)

    def _go(self, group: Group, eval_id: str) -> None:
        run = self.runs[eval_id]
        if not self._n_left[eval_id]:  # a shard without rows
            run.go()
            self._end(eval_id)
            return
        if len(group.runs) > 1:
            group.cap = group.cap or SharedCap(group.most_in_flight, self._lock)
            most = run.prepared.config.in_flight
            group.cap.add(run.engine, Need(most, lambda: self._n_left[eval_id]))
        run.go()

    def _load(self, group: Group, eval_id: str) -> None:
        """Start the hosts of an eval and let it begin. If its code does not load, all its runs are errors."""
        run = self.runs[eval_id]
        with self._lock:
            if self._stopped:
                return
            run.start_hosts()
        has_loaded = self._has_loaded(eval_id)
        with self._lock:
            if self._stopped:
                return
            if has_loaded:
                self._go(group, eval_id)
            elif not self._n_left[eval_id]:
                self._end(eval_id)
            self._begin_next()

    def _has_loaded(self, eval_id: str) -> bool:
        """Wait until the code of an eval is loaded whose turn came later. Give its runs up if it does not load."""
        run = self.runs[eval_id]
        if error := load_error(run):
            run.notices.alert(error.replace("\n", "\n    "))
            run.engine.submit(run.selected.runs)
            return False
        said = {note for other in self.runs.values() if other is not run for note in other.engine.notes}
        for note in run.engine.notes:
            if note not in said:
                run.notices.add(note)
        return True

    def _end(self, eval_id: str) -> None:
        run, group = self.runs[eval_id], self._group_of[eval_id]
        run.stop_clock()
        run.engine.release()
        group.running.discard(eval_id)
        if group.cap is not None:
            group.cap.remove(run.engine)

    def perform(self, eval_id: str, runs: Sequence[RunId], done: Callable[[], bool]) -> None:
        """Roll out and score `runs` of an inline eval in this thread until `done`. Other evals have hosts for that."""
        if self._inline is None:
            return
        if eval_id in self._begun:
            self.runs[eval_id].engine.submit(runs)
        else:
            self._begun.add(eval_id)
            if eval_id in self._later:
                self._inline.host(eval_id).load()
            if eval_id not in self._later or self._has_loaded(eval_id):
                self.runs[eval_id].go(runs)
        self._inline.host(eval_id).serve(done)

    def pause(self) -> None:
        """Begin no rollout until `resume`. Inline evals need no pause: the open prompt blocks them."""
        if self._inline is None and not self._paused:
            self._paused = True
            for run in self.runs.values():
                run.engine.pause()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            for run in self.runs.values():
                run.engine.resume()

    def stop(self, reason: StopReason, text: str) -> None:
        """Stop every eval that is not done, and start no further one."""
        with self._lock:
            self._stopped = True
        for eval_id, run in self.runs.items():
            if self._n_left[eval_id]:
                run.engine.stop(reason, text)

    def end_early(self) -> None:
        """Begin no further run, and give those in flight a moment to finish. Another Ctrl-C ends them at once."""
        try:
            self.stop("interrupt", "interrupted")
            for run in self.runs.values():
                run.engine.submit(run.selected.runs)  # also those of evals that have not started
            self.close(INTERRUPT_GRACE_S if self._inline is None else 0.0)
        except KeyboardInterrupt:
            for run in self.runs.values():
                run.engine.kill()
            self.close()

    def close(self, grace_s: float = 0.0) -> None:
        """Close all engines and make the results. Idempotent."""
        with self._lock:
            self._stopped = True
        for group in self._groups.values():
            if group.cap is not None:
                group.cap.close()
        if not self.finished and not self.failures:
            together = [list(group.runs.values()) for group in self._groups.values() if len(group.runs) > 1]
            eval_ids = {run: eval_id for eval_id, run in self.runs.items()}
            failures: dict[EvalRun, Exception] = {}
            finished = finish(list(self.runs.values()), grace_s, together, failures)
            self.finished.update((eval_ids[each.run], each) for each in finished)
            self.failures.update((eval_ids[run], error) for run, error in failures.items())

    def discard(self) -> None:
        """Remove every trace of evals that have not begun a run."""
        for run in self.runs.values():
            run.discard()
        self.runs.clear()
        self._groups.clear()
        self.finished.clear()


def load_error(run: EvalRun) -> str:
    """Return why code does not load, "" if it does."""
    try:
        run.engine.loaded()
    except CodeError as error:
        return f"{error}\n{error.details}".rstrip()
    except HostError as error:
        return f"{error}\n{run.host_log_text()[-LOG_CHARS:]}".rstrip()
    return ""


class Shared(Protocol):
    """An engine that has a share of a cap."""

    @property
    def progress(self) -> RunCounts: ...

    @property
    def most_in_flight(self) -> int: ...

    def limit(self, in_flight: int) -> None: ...


class Need(NamedTuple):
    """The most rollouts that an engine may have in flight, and the number of its runs that are left."""

    most: int
    n_left: Callable[[], int]


class SharedCap:
    """Shares out `cap` rollouts in flight among the entries of one config while they run together.

    Shares are moved as entries begin and end: first an entry with too much gives some back, and what its hosts have
    really given back goes to others. So the cap is used, and never exceeded. Every method may be called from any
    thread. No share moves while somebody holds `lock`, so that engines that are added together get theirs together.
    """

    def __init__(self, cap: int, lock: threading.RLock) -> None:
        self._cap = cap
        self._lock = lock
        self._needs: dict[Shared, Need] = {}
        self._limits: dict[Shared, int] = {}
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="osmosis-shares", daemon=True)

    def add(self, engine: Shared, need: Need) -> None:
        """Let an engine have a share. It begins nothing before it gets one."""
        engine.limit(0)
        with self._lock:
            self._needs[engine], self._limits[engine] = need, 0
            if self._thread.ident is None and not self._closed:
                self._thread.start()
        self._changed.set()

    def remove(self, engine: Shared) -> None:
        """Take an engine out, all runs of which are done."""
        with self._lock:
            self._needs.pop(engine, None)
            self._limits.pop(engine, None)
        self._changed.set()

    def changed(self) -> None:
        """Note that a run is done."""
        self._changed.set()

    def close(self) -> None:
        """Move no further share."""
        self._closed = True
        self._changed.set()

    def _run(self) -> None:
        moved = True
        while not self._closed:
            self._changed.wait(None if moved else TICK_S)
            self._changed.clear()
            moved = self.share()
            time.sleep(TICK_S)

    def share(self) -> bool:
        """Move shares as far as they can be moved now. Return True if nobody waits for more."""
        with self._lock:
            needs = {engine: min(need.most, _left(engine, need)) for engine, need in self._needs.items()}
            fair = fair_shares(self._cap, needs)
            short = [engine for engine in fair if self._limits[engine] < fair[engine]]
            if not short:
                return True
            for engine, share in fair.items():
                if self._limits[engine] > share:
                    self._limit(engine, share)
            free = self._cap - sum(engine.most_in_flight for engine in self._needs)
            for engine in short:
                more = min(free, fair[engine] - self._limits[engine])
                if more > 0:
                    self._limit(engine, self._limits[engine] + more)
                    free -= more
            return all(self._limits[engine] >= fair[engine] for engine in short)

    def _limit(self, engine: Shared, in_flight: int) -> None:
        self._limits[engine] = in_flight
        engine.limit(in_flight)


def fair_shares(cap: int, needs: Mapping[T, int]) -> dict[T, int]:
    """Return equal shares of a cap, none larger than it is needed; what one does not need goes to the others.

    >>> fair_shares(10, {"a": 8, "b": 8, "c": 1}), fair_shares(2, {"a": 8, "b": 8, "c": 8})
    ({'c': 1, 'a': 5, 'b': 4}, {'a': 1, 'b': 1, 'c': 0})
    """
    shares: dict[T, int] = {}
    left = cap
    for number, (name, need) in enumerate(sorted(needs.items(), key=lambda pair: pair[1])):
        shares[name] = min(need, -(-left // (len(needs) - number)))
        left -= shares[name]
    return shares


def _left(engine: Shared, need: Need) -> int:
    """Return the number of runs that may still be in flight: also those of a row that were made besides."""
    counts = engine.progress
    return max(need.n_left(), counts.submitted - counts.done)
