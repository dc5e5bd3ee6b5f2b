"""The outcomes of units. Engines add them from threads of their own; tests and xdist workers wait for them."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace

from pytest_osmosis.evals import EvalRun
from pytest_osmosis.plugin.items.node_ids import UnitKey
from pytest_osmosis.record.run_id import RowId, RunId
from pytest_osmosis.report.row_outcome import outcome_of_row
from pytest_osmosis.verdicts.pass_rule import Outcome


class Outcomes:
    """The outcomes of a session's units. `completed` gets each unit once, in the order in which they are done."""

    def __init__(self) -> None:
        self.completed: queue.SimpleQueue[UnitKey] = queue.SimpleQueue()
        self._rows: dict[UnitKey, dict[RunId, Outcome]] = {}
        self._outcomes: dict[UnitKey, Outcome] = {}
        self._added = threading.Condition()  # protects _outcomes

    def add(self, eval_id: str, eval_run: EvalRun, run: RunId, outcome: Outcome) -> None:
        """Add the outcome of a run. A row has its outcome when the last of its runs is done."""
        plan = eval_run.prepared.collected
        key = UnitKey(eval_id, plan.unit_of(run))
        if isinstance(key.unit, RowId):
            done = self._rows.setdefault(key, {})
            done[run] = outcome
            if len(done) < plan.n:
                return
            del self._rows[key]
            outcome = outcome_of_row(done, [each for each in done if eval_run.record(each).status == "pending"])
        self.set(key, outcome)

    def set(self, key: UnitKey, outcome: Outcome) -> None:
        """Set the outcome of a unit."""
        with self._added:
            self._outcomes[key] = outcome
            self._added.notify_all()
        self.completed.put(key)

    def wait(self, key: UnitKey) -> Outcome:
        """Wait for an outcome. Only the first caller gets its `sections`, which pytest's report keeps from then on."""
        with self._added:
            while key not in self._outcomes:
                self._added.wait()
            outcome = self._outcomes[key]
            if outcome.sections:
                self._outcomes[key] = replace(outcome, sections=())
        return outcome

    def is_done(self, key: UnitKey) -> bool:
        """Return True if `wait` would return at once."""
        with self._added:
            return key in self._outcomes
