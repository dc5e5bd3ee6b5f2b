"""From measured results and the rules of an eval to all of its results: the comparisons, and the verdicts of gates.

Whoever has the records can conclude: an eval run that has ended, the merge of shards, and the rebuilding from a
journal. The first step compares with the baseline; between the steps, the comparisons of several evals are corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stop import Stop
from pytest_osmosis.results.causes import causes_of, too_many
from pytest_osmosis.results.read import PublishedHead, PublishedResults, read_earlier_results
from pytest_osmosis.results.results import Results, range_for, runs_for
from pytest_osmosis.stats import holm
from pytest_osmosis.text.names import shown
from pytest_osmosis.verdicts import comparison, gates
from pytest_osmosis.verdicts.comparison import RowComparison
from pytest_osmosis.verdicts.gates import Verdict, verdict_without_value
from pytest_osmosis.verdicts.pass_rule import PassRule


@dataclass(frozen=True, slots=True)
class Rules:
    """The gates of an eval, its baseline, and the reasons that keep it from deciding.

    `part` says which share of the plan the runs are, None for the whole. `baseline_part` says the same of the
    baseline's model. With `new_baseline` the runs become the baseline, so that nothing is compared with the old one.
    `differs` are the settings that differ from those of the stored baseline. `baseline_stopped` is the reason why the
    baseline's model was stopped early.
    """

    gates: Sequence[GateRule] = ()
    part: str | None = None
    baseline_part: str | None = None
    new_baseline: bool = False
    baseline_results: PublishedResults | None = None
    differs: tuple[str, ...] = ()
    baseline_stopped: str | None = None

    @property
    def decide(self) -> bool:
        """True if a gate decides in place of single runs, once all runs of the plan are there.

        One that can be decided is enough. A command that writes a new baseline accepts the runs as they are.
        """
        return bool(self.gates) and (self.new_baseline or any(self._undecided(rule) is None for rule in self.gates))

    def undecided(self, rule: GateRule) -> Verdict | None:
        """Return the verdict of a gate about which the runs decide nothing, None if they decide it."""
        if self.part is not None:
            return verdict_without_value(rule, "partial", self.part)
        return self._undecided(rule)

    def _undecided(self, rule: GateRule) -> Verdict | None:
        if not rule.is_regression:
            return None
        if self.new_baseline:
            return verdict_without_value(rule, "not decided", "this command writes a new baseline")
        if self.baseline_part is not None:
            return verdict_without_value(rule, "partial", self.baseline_part)
        return None


def stop_of(
    stop: Stop | None, records: Sequence[RunRecord], pass_rule: PassRule, max_errors: str, *, asks_models: bool = True
) -> Stop | None:
    """Return why runs of a session that is over never began, None if each was performed that was to be.

    Which errors were more than `max_errors` is only known now: its text names them.
    """
    ran = all(record.status != "pending" for record in records)
    if stop is None or (stop.reason == "closed" and not asks_models) or (stop.reason in ("decided", "closed") and ran):
        return None
    if stop.reason != "max_errors":
        return stop
    return stop._replace(text=too_many(causes_of(records, pass_rule), len(records), max_errors))


def compared_with_baseline(measured: Results, rules: Rules) -> RowComparison | None:
    """Compare the rows with the baseline.

    None without a baseline, for a part of the plan, and after an early stop: the rows that it measured are a biased
    sample.
    """
    stored, baseline = rules.baseline_results, measured.baseline
    allowed = next((-rule.minimum for rule in rules.gates if rule.is_regression), 0.0)
    if rules.part is not None or measured.decided:
        return None
    if stored is not None:
        return comparison.compare(
            "baseline",
            shown(stored.path),
            comparison.matched(measured.row_runs(), stored.row_runs()),
            started_at=stored.started_at,
            allowed=allowed,
            differs=rules.differs,
        )
    if baseline is None or rules.baseline_part is not None:
        return None
    rows = comparison.matched_by_index(measured.row_runs(), measured.row_runs(baseline))
    return comparison.compare("baseline", baseline.model, rows, allowed=allowed, stopped=rules.baseline_stopped)


def corrected(comparisons: Sequence[RowComparison | None]) -> list[RowComparison | None]:
    """Return the comparisons of several evals with adjusted p; None for an eval without a baseline.

    Each comparison is a test of its own, so the more evals there are, the more often a p below 0.05 occurs by chance.
    Holm's correction keeps the chance of any false regression at 5%.
    """
    p_values = [each.paired.p for each in comparisons if each is not None and each.paired is not None]
    if len(p_values) < 2:
        return list(comparisons)
    adjusted = iter(holm(p_values))
    return [
        each.among(len(p_values), next(adjusted)) if each is not None and each.paired is not None else each
        for each in comparisons
    ]


def judged(measured: Results, rules: Rules, compared: RowComparison | None) -> Results:
    """Return the results with `compared` as the comparison, and with the verdicts of the gates."""
    verdicts = [_verdict(rule, measured, rules, compared) for rule in rules.gates]
    return replace(measured, comparison=compared, verdicts=verdicts)


def _verdict(rule: GateRule, measured: Results, rules: Rules, compared: RowComparison | None) -> Verdict:
    verdict = rules.undecided(rule)
    if verdict is not None:
        return verdict
    if _nothing_succeeded(measured):
        return verdict_without_value(rule, "not measured", "no rollout succeeded before the eval stopped")
    if not rule.is_regression:
        return gates.decide(
            rule, runs_for(rule, measured.records, measured.pass_rule), range_for(rule, measured.pass_rule)
        )
    if compared is None:  # stored rollouts of an eval that had no baseline
        return verdict_without_value(rule, "not measured", "no run of the baseline's model is stored")
    return comparison.decide(rule, compared)


def _nothing_succeeded(measured: Results) -> bool:
    """Return True if the eval stopped for a cause that every run would meet, and all that ran did."""
    is_systemic = measured.stop_reason == "systemic"
    return is_systemic and not any(record.rolled and record.boundary is None for record in measured.records)


def since_previous(measured: Results, last: PublishedHead | None) -> RowComparison | None:
    """Compare the rows with the previous run of the plan.

    None if one of them is not whole, or if they measured no common row. Raises `ResultsError` if it cannot be read.
    """
    if last is None or not measured.whole:
        return None
    rows = comparison.matched(measured.row_runs(), read_earlier_results(last.path).row_runs())
    compared = comparison.compare("previous run", last.path.parent.name, rows, started_at=last.started_at)
    return compared if compared.n_rows else None
