"""The order in which the evals of a session run: one after the other, until something stops them.

Entries of one config run together, some at a time, and share one cap on rollouts in flight.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar

import pytest

from pytest_osmosis.errors import CodeError, HostError
from pytest_osmosis.evals import EvalRun, FinishedEval, Prepared, RescoreSource, finish
from pytest_osmosis.plugin import session_options
from pytest_osmosis.plugin.items import node_id
from pytest_osmosis.record.lifecycle import StopReason
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunCounts
from pytest_osmosis.results.conclude import any_answer
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.names import shown

if TYPE_CHECKING:
    from pytest_osmosis.plugin.debugger import InlineHosts


class SessionEval:
    """An eval of the session. `id` is the beginning of its tests' node ids.

    `may_stop_early`: it may end as soon as its gates are decided. `updates_baseline`: its results become the baseline.
    """

    reports_units: ClassVar[bool]
    """True if each unit is a test of its own, judged by thresholds and gates. Conversations of other evals are kept."""
    may_stop_early = False
    updates_baseline = False

    def __init__(self, eval_id: str, prepared: Prepared) -> None:
        self.id = eval_id
        self.prepared = prepared

    def rerun(self, run: RunId) -> str:
        """Return the command that repeats the test of `run`, for the folder in which pytest was called."""
        raise NotImplementedError

    def decides(self, run: EvalRun) -> bool:
        """Return True if the gates of this eval decide, provided that it has any."""
        raise NotImplementedError

    def gated(self, run: EvalRun) -> bool:
        """Return True if gates decide in place of single tests."""
        return self.decides(run) and run.facts.gates_decide

    def measured(self, results: Results) -> bool:
        """Return True if the results hold anything that a verdict could rest on."""
        raise NotImplementedError


class NamedEval(SessionEval):
    """An eval that the command names."""

    reports_units = True

    def __init__(
        self, eval_id: str, prepared: Prepared, config: pytest.Config, options: session_options.SessionOptions
    ) -> None:
        super().__init__(eval_id, prepared)
        self._config = config
        self.may_stop_early = options.stop_when_decided is not None
        self.updates_baseline = options.update_baseline

    def rerun(self, run: RunId) -> str:
        plan, source = self.prepared.plan, self.prepared.source
        stored = [f"--osmosis-from={shown(source.run.directory.path)}"] if isinstance(source, RescoreSource) else []
        return session_options.rerun_command(self._config, node_id(self.id, plan.unit_of(run)), *stored)

    def decides(self, run: EvalRun) -> bool:
        """Return True unless only a part was selected, or `--runxfail` leaves the decision to single runs.

        The gates of a whole shard decide once it is merged with the others.
        """
        is_part = run.selected.partial and not run.selected.awaits_merge
        return not self._config.getoption("runxfail", False) and not is_part

    def measured(self, results: Results) -> bool:
        """Return True if a run counts as an answer."""
        return any_answer(results)


T = TypeVar("T")
TICK_S = 0.02
"""Shares move at most this often, and are looked at this often until they have moved."""
INTERRUPT_GRACE_S = 2.0
LOG_CHARS = 2000
"""The last characters of a host's log that are shown if it does not start."""
MOST_AT_ONCE = 4
"""The entries of one config that run together, each with hosts of its own. Those of the next one load meanwhile."""


@dataclass(eq=False)
class QueuedEval:
    """An eval of a session: `n_left` of its runs are not done. If it loads `later`, its hosts wait for its turn."""

    id: str
    run: EvalRun
    group: Group
    later: bool
    n_left: int
    stage: Literal["waiting", "running", "done"] = "waiting"


class Group:
    """Evals that run together: the entries of one config, or a single eval."""

    def __init__(self) -> None:
        self.evals: list[QueuedEval] = []
        self.cap: SharedCap | None = None

    def at(self, stage: Literal["waiting", "running"]) -> list[QueuedEval]:
        return [each for each in self.evals if each.stage == stage]

    @property
    def most_in_flight(self) -> int:
        """The cap on the rollouts of all: the largest that one of them may have in flight."""
        return max(each.run.prepared.config.in_flight for each in self.evals)


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
        self._evals: dict[str, QueuedEval] = {}
        self._groups: dict[str, Group] = {}
        self._lock = threading.RLock()
        self._has_hosts_on_cluster = False
        self._stopped = False
        self._paused = False

    @property
    def together(self) -> list[list[FinishedEval]]:
        """The finished evals of each config with several."""
        found = [[self.finished[each.id] for each in evals if each.id in self.finished] for evals in self._several]
        return [each for each in found if each]

    @property
    def _several(self) -> list[list[QueuedEval]]:
        return [group.evals for group in self._groups.values() if len(group.evals) > 1]

    def loads_later(self, group: str, *, on_cluster: bool) -> bool:
        """Return True if the code of the next eval of a group loads later, once it is its turn.

        That of an eval `on_cluster` does, unless it is the first one: its hosts may take all places that there are.
        """
        n_before = len(self._groups[group].evals) if group in self._groups else 0
        return (on_cluster and self._has_hosts_on_cluster) or n_before >= MOST_AT_ONCE

    def add(self, eval_id: str, run: EvalRun, group: str, *, on_cluster: bool) -> None:
        """Add an eval. Those with the same `group` run together."""
        later = self.loads_later(group, on_cluster=on_cluster)
        together = self._groups.setdefault(group, Group())
        self.runs[eval_id] = run
        self._evals[eval_id] = QueuedEval(eval_id, run, together, later, len(run.selected.runs))
        together.evals.append(self._evals[eval_id])
        self._has_hosts_on_cluster |= on_cluster

    def start(self) -> None:
        """Wait until the code of all hosts that started is loaded, then start the first evals.

        Raise `pytest.UsageError` if code does not load, unless it is only that of some environments.
        """
        failed: dict[str, list[QueuedEval]] = {}
        for each in self._evals.values():
            if each.later:
                continue
            if self._inline is not None:
                self._inline.host(each.id).load()
            if error := load_error(each.run):
                failed.setdefault(error, []).append(each)
        without = [each for evals in failed.values() for each in evals]
        left_out = all(each.run.prepared.environment is not None for each in without)
        if without and (not left_out or len(without) == len(self._evals) or self._inline is not None):
            self.discard()
            names = {error: ", ".join(each.run.prepared.config.name for each in failed[error]) for error in failed}
            raise pytest.UsageError(*(f"{found}: {error}" for error, found in names.items()))
        for each in without:
            each.later = True  # it is not measured, as one that does not load when it is its turn
        if self._inline is None:
            with self._lock:
                self._begin_next()
            return
        for each in self._evals.values():
            if not each.n_left:  # no test will perform anything
                each.run.go()

    def run_done(self, eval_id: str) -> None:
        """Count a run of `eval_id` as done; after its last one another eval starts. Called in the engine's thread."""
        each = self._evals[eval_id]
        with self._lock:
            each.n_left -= 1
            is_last = not each.n_left
        if is_last:
            each.run.stop_clock()
        if self._inline is not None:
            self._inline.host(eval_id).wake()
            return
        if each.group.cap is not None:
            each.group.cap.changed()
        if is_last:
            with self._lock:
                self._end(each)
                self._begin_next()

    def _begin_next(self) -> None:
        """Begin the evals whose turn it is: of the first group that is not done, as many as may run at once."""
        while not self._stopped:
            group = next((group for group in self._groups.values() if group.at("waiting") or group.at("running")), None)
            if group is None or not (waiting := group.at("waiting")):
                return
            if len(group.at("running")) >= min(MOST_AT_ONCE, group.most_in_flight):
                if not self._has_hosts_on_cluster:  # they would take the places of those whose turn it is
                    waiting[0].run.start_hosts()  # which load their code before it is their turn
                return
            waiting[0].stage = "running"
            if waiting[0].later:
                threading.Thread(target=self._load, args=waiting[:1], name="osmosis-load", daemon=True).start()
            else:
                self._go(waiting[0])

    def _go(self, each: QueuedEval) -> None:
        group, run = each.group, each.run
        if not each.n_left:  # a shard without rows
            run.go()
            self._end(each)
            return
        if len(group.evals) > 1:
            group.cap = group.cap or SharedCap(group.most_in_flight, self._lock)
            group.cap.add(run.engine, run.prepared.config.in_flight, lambda: each.n_left)
        run.go()

    def _load(self, each: QueuedEval) -> None:
        """Start the hosts of an eval and let it begin. If its code does not load, all its runs are errors."""
        with self._lock:
            if self._stopped:
                return
            each.run.start_hosts()
        has_loaded = self._has_loaded(each.run)
        with self._lock:
            if self._stopped:
                return
            if has_loaded:
                self._go(each)
            elif not each.n_left:
                self._end(each)
            self._begin_next()

    def _has_loaded(self, run: EvalRun) -> bool:
        """Wait until the code of an eval is loaded whose turn came later. Give its runs up if it does not load."""
        if error := load_error(run):
            run.notices.alert(error.replace("\n", "\n    "))
            run.engine.submit(run.selected.runs)
            return False
        said = {note for other in self.runs.values() if other is not run for note in other.engine.loop.notes}
        for note in run.engine.loop.notes:
            if note not in said:
                run.notices.add(note)
        return True

    def _end(self, each: QueuedEval) -> None:
        each.run.stop_clock()
        each.run.engine.release()
        each.stage = "done"
        if each.group.cap is not None:
            each.group.cap.remove(each.run.engine)

    def perform(self, eval_id: str, runs: Sequence[RunId], done: Callable[[], bool]) -> None:
        """Roll out and score `runs` of an inline eval in this thread until `done`. Other evals have hosts for that."""
        if self._inline is None:
            return
        each, host = self._evals[eval_id], self._inline.host(eval_id)
        if each.stage == "running":
            each.run.engine.submit(runs)
        else:
            each.stage = "running"
            if each.later:
                host.load()
            if not each.later or self._has_loaded(each.run):
                each.run.go(runs)
        host.serve(done)

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
        for each in self._evals.values():
            if each.n_left:
                each.run.engine.stop(reason, text)

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
            together = [[each.run for each in evals] for evals in self._several]
            eval_ids = {run: eval_id for eval_id, run in self.runs.items()}
            failures: dict[EvalRun, Exception] = {}
            finished = finish(list(self.runs.values()), grace_s, together, failures)
            self.finished.update((eval_ids[each.run], each) for each in finished)
            self.failures.update((eval_ids[run], error) for run, error in failures.items())

    def discard(self) -> None:
        """Remove every trace of evals that have not begun a run."""
        for run in self.runs.values():
            run.discard()
        for evals in (self.runs, self._evals, self._groups, self.finished):
            evals.clear()


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


class SharedCap:
    """Shares out `cap` rollouts in flight among the entries of one config while they run together.

    Shares are moved as entries begin and end: first an entry with too much gives some back, and what its hosts have
    really given back goes to others. So the cap is used, and never exceeded. Every method may be called from any
    thread. No share moves while somebody holds `lock`, so that engines that are added together get theirs together.
    """

    def __init__(self, cap: int, lock: threading.RLock) -> None:
        self._cap = cap
        self._lock = lock
        self._needs: dict[Shared, tuple[int, Callable[[], int]]] = {}
        self._limits: dict[Shared, int] = {}
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="osmosis-shares", daemon=True)

    def add(self, engine: Shared, most: int, n_left: Callable[[], int]) -> None:
        """Let an engine have a share, of at most `most`, while runs are left. It begins nothing before it gets one."""
        engine.limit(0)
        with self._lock:
            self._needs[engine], self._limits[engine] = (most, n_left), 0
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
            needs: dict[Shared, int] = {}
            for engine, (most, n_left) in self._needs.items():
                counts = engine.progress  # of a row, also runs that were made besides may be in flight
                needs[engine] = min(most, max(n_left(), counts.submitted - counts.done))
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
