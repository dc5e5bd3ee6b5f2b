"""Exact curtailment: an eval may end once no missing run can change a verdict of its gates.

The bounds are those that gates use for unmeasured runs, so the verdicts equal those of the whole eval, in whatever
order its runs are done. Statistics of the runs that were done are biased, and results say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.results import gate_value
from pytest_osmosis.verdicts.gates import Short, State, needs_all, short_of, title_of
from pytest_osmosis.verdicts.pass_rule import PassRule


def why_impossible(rules: Sequence[GateRule], *, removable: bool) -> str | None:
    """Return why gates cannot be decided before the last run, None if they can.

    `removable` says that a Grader may remove runs.

    >>> why_impossible([GateRule("pass_rate", 0.7), GateRule("mean", 0.5)], removable=False)
    'gate mean >= 0.5 needs every run (its scores have no known bounds)'
    """
    for rule in rules:
        why = needs_all(rule, removable=removable)
        if why is not None:
            return f"gate {title_of(rule)} needs every run ({why})"
    return None


class GateTracker:
    """Follows the runs of a whole plan until its gates are decided. `why_impossible` must be None for the gates."""

    def __init__(self, rules: Sequence[GateRule], runs: Iterable[RunId]) -> None:
        planned = list(runs)
        self._gates = [_Gate(rule, planned) for rule in rules]

    def done(self, record: RunRecord, pass_rule: PassRule) -> str | None:
        """Count a run that is done. Return the reason why no further run is needed, None if one is."""
        for gate in self._gates:
            gate.done(record, pass_rule)
        states = [(title_of(gate.rule), gate.state) for gate in self._gates]
        if any(state is None for _, state in states):
            return None
        verdicts = " and ".join(f"gate {title} {state}" for title, state in states)
        return f"{verdicts} whatever the other runs give"


class _Gate:
    """A gate and the values of the runs so far.

    `_short` counts the passes and the fails that are missing at least; computing it takes all rows, so it is counted
    down by one for each run and computed again only when it reaches 0.
    """

    def __init__(self, rule: GateRule, planned: Iterable[RunId]) -> None:
        self.rule = rule
        self.state: State | None = None
        self._rows: dict[int, dict[int, float | None]] = {}
        for run in planned:
            self._rows.setdefault(run.row, {})[run.index] = None
        self._short = Short(1, 1)

    def done(self, record: RunRecord, pass_rule: PassRule) -> None:
        row = self._rows[record.run.row]
        if record.status == "skipped":
            del row[record.run.index]
            self._short = Short(self._short.passes - 1, self._short.fails - 1)
        else:
            value = row[record.run.index] = gate_value(self.rule, record, pass_rule)
            if value is None:
                return
            self._short = Short(self._short.passes - (value == 1.0), self._short.fails - (value == 0.0))
        if self.state is None and min(self._short) <= 0:
            self._decide()

    def _decide(self) -> None:
        self._short = short_of(self.rule, [list(row.values()) for row in self._rows.values()])
        if self._short.passes == 0:
            self.state = "holds"
        elif self._short.fails == 0:
            self.state = "fails"
