"""Exact curtailment: an eval may end once no run that is missing can change a verdict of its gates.

No statistics are made of it: the bounds are those of `gates` over unmeasured runs, so that the verdicts are those of
the whole eval, in whatever order its runs are done. What is estimated from the runs that are there is biased.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.results import gate_value
from pytest_osmosis.verdicts.gates import Short, State, needs_all, short_of, title_of
from pytest_osmosis.verdicts.pass_rule import PassRule


def obstacle(rules: Sequence[GateRule], *, removable: bool) -> str | None:
    """Why gates cannot be decided before the last run, None where they can.

    >>> obstacle([GateRule("pass_rate", 0.7), GateRule("mean", 0.5)], removable=False)
    'gate mean >= 0.5 needs every run: nothing says between which bounds its scores lie'
    """
    for rule in rules:
        why = needs_all(rule, removable=removable)
        if why is not None:
            return f"gate {title_of(rule)} needs every run: {why}"
    return None


class Curtailment:
    """Hears of each run of a complete plan, once, when it is done. Only of gates without an `obstacle`."""

    def __init__(self, rules: Sequence[GateRule], runs: Iterable[RunId]) -> None:
        planned = list(runs)
        self._gates = [_Gate(rule, planned) for rule in rules]

    def done(self, record: RunRecord, judging: PassRule) -> str | None:
        """Why no further run is needed, None while one is."""
        for gate in self._gates:
            gate.done(record, judging)
        states = [(title_of(gate.rule), gate.state) for gate in self._gates]
        if any(state is None for _, state in states):
            return None
        said = " and ".join(f"gate {title} {state}" for title, state in states)
        return f"decided: {said} whatever the other runs give"


class _Gate:
    """A gate and what its runs are to it so far. Its bounds are looked at only when they may have met the minimum."""

    def __init__(self, rule: GateRule, planned: Iterable[RunId]) -> None:
        self.rule = rule
        self.state: State | None = None
        self._rows: dict[int, dict[int, float | None]] = {}
        for run in planned:
            self._rows.setdefault(run.row, {})[run.index] = None
        self._short = Short(1, 1)

    def done(self, record: RunRecord, judging: PassRule) -> None:
        row = self._rows[record.run.row]
        if record.status == "skipped":
            del row[record.run.index]
            self._short = Short(self._short.passes - 1, self._short.fails - 1)
        else:
            value = row[record.run.index] = gate_value(self.rule, record, judging)
            if value is None:
                return
            self._short = Short(self._short.passes - (value == 1.0), self._short.fails - (value == 0.0))
        if self.state is None and min(self._short) <= 0:
            self._look()

    def _look(self) -> None:
        self._short = short_of(self.rule, [list(row.values()) for row in self._rows.values()])
        if self._short.passes == 0:
            self.state = "holds"
        elif self._short.fails == 0:
            self.state = "fails"
