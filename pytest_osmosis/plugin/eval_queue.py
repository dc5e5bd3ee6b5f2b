"""The order in which the evals of a session run: one after the other, until something stops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_osmosis.errors import CodeError, HostError
from pytest_osmosis.evals import EvalRun, FinishedEval, finish
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stop import StopReason

if TYPE_CHECKING:
    from pytest_osmosis.plugin.debug.inline import InlineHosts

INTERRUPT_GRACE_S = 2.0
LOG_CHARS = 2000
"""The last characters of a host's log that are shown if it does not start."""


class EvalQueue:
    """Starts each eval when the one before it is done. `runs` are in order, by eval id; `finished` after `close`.

    With `inline` no eval starts by itself: `perform` rolls out what a test waits for.
    """

    def __init__(self, inline: InlineHosts | None) -> None:
        self.runs: dict[str, EvalRun] = {}
        self.finished: dict[str, FinishedEval] = {}
        self._inline = inline
        self._n_left: dict[str, int] = {}
        self._begun: set[str] = set()
        self._stopped = False
        self._paused = False

    def add(self, eval_id: str, run: EvalRun) -> None:
        self.runs[eval_id] = run
        self._n_left[eval_id] = len(run.selected.runs)

    def start(self) -> None:
        """Wait until all code is loaded, then start the first eval. Raise `pytest.UsageError` if code does not load."""
        for eval_id in self.runs:
            if self._inline is not None:
                self._inline.host(eval_id).load()
        errors = [error for run in self.runs.values() if (error := _load_error(run))]
        if errors:
            self.discard()
            raise pytest.UsageError(*errors)
        if self._inline is None:
            self._start_first(list(self.runs))
            return
        for eval_id, run in self.runs.items():
            if not self._n_left[eval_id]:  # no test will perform anything
                run.go()

    def run_done(self, eval_id: str) -> None:
        """Count a run of `eval_id` as done; after its last one the next eval starts. Called in the engine's thread."""
        self._n_left[eval_id] -= 1
        if self._n_left[eval_id] == 0:
            self.runs[eval_id].stop_clock()
        if self._inline is not None:
            self._inline.host(eval_id).wake()
            return
        if self._n_left[eval_id] == 0:
            self.runs[eval_id].engine.release()
            if not self._stopped:
                order = list(self.runs)
                self._start_first(order[order.index(eval_id) + 1 :])

    def _start_first(self, eval_ids: Sequence[str]) -> None:
        for eval_id in eval_ids:
            self.runs[eval_id].go()
            if self._n_left[eval_id]:
                return
            self._end(eval_id)  # a shard without rows

    def _end(self, eval_id: str) -> None:
        self.runs[eval_id].stop_clock()
        self.runs[eval_id].engine.release()

    def perform(self, eval_id: str, runs: Sequence[RunId], done: Callable[[], bool]) -> None:
        """Roll out and score `runs` of an inline eval in this thread until `done`. Other evals have hosts for that."""
        if self._inline is None:
            return
        if eval_id in self._begun:
            self.runs[eval_id].engine.submit(runs)
        else:
            self._begun.add(eval_id)
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
        if not self.finished:
            self.finished.update(zip(self.runs, finish(list(self.runs.values()), grace_s), strict=True))

    def discard(self) -> None:
        """Remove every trace of evals that have not begun a run."""
        for run in self.runs.values():
            run.discard()
        self.runs.clear()
        self.finished.clear()


def _load_error(run: EvalRun) -> str:
    try:
        run.engine.loaded()
    except CodeError as error:
        return f"{run.prepared.config.name}: {error}\n{error.details}".rstrip()
    except HostError as error:
        return f"{run.prepared.config.name}: {error}\n{run.host_log_text()[-LOG_CHARS:]}".rstrip()
    return ""
