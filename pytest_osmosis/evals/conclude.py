"""From the records of a closed engine to results: statistics, the comparison with the baseline, verdicts of gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.errors import ResultsError
from pytest_osmosis.evals.baseline import differing_settings
from pytest_osmosis.evals.run import EvalRun
from pytest_osmosis.evals.run_directory import utc_text
from pytest_osmosis.evals.undecided_gates import undecided
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stop import Stop
from pytest_osmosis.results import results
from pytest_osmosis.results.causes import causes_of, too_many
from pytest_osmosis.results.publish import published_config
from pytest_osmosis.results.read import read_earlier_results
from pytest_osmosis.results.results import ModelResults, Results, Throttling
from pytest_osmosis.stats import Summary
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts import comparison, gates, matching
from pytest_osmosis.verdicts.comparison import RowComparison
from pytest_osmosis.verdicts.gates import Verdict


class Conclusion:
    """Makes the results of a closed eval run, in two steps: the comparison with its baseline, then all results.

    Between the two, the comparisons of all evals of a session are corrected together.
    """

    def __init__(self, run: EvalRun) -> None:
        self._prepared = run.prepared
        self._selected = run.selected
        self._engine = run.engine
        self._run = run
        self._measured = self._measure()
        self.comparison = self._compare()

    def results(self, compared: RowComparison | None) -> Results:
        """Return the results, with the verdicts of gates and `compared` as the comparison."""
        measured = self._measured
        return replace(
            measured,
            comparison=compared,
            verdicts=[self._verdict(rule, compared) for rule in self._prepared.config.gates],
            previous=self._since_previous(),
            rescored=self._prepared.source.rescored(measured, self._run),
        )

    def _measure(self) -> Results:
        """Return the results as far as they follow from the records alone."""
        prepared, selected, engine = self._prepared, self._selected, self._engine
        records, by_function, overall = self._summarize(selected.own)
        throttle, stop, ran = engine.throttle, engine.stopped, all(record.status != "pending" for record in records)
        if stop is not None and (stop.reason == "closed" or (stop.reason == "decided" and ran)):
            stop = None
        return Results(
            description=prepared.description,
            pass_rule=engine.pass_rule,
            records=records,
            partial=selected.partial,
            stopped=None if stop is None else self._stop_text(stop, records),
            stop_reason=None if stop is None else stop.reason,
            duration_ms=prepared.source.rollouts_took_ms(self._run.duration_ms),
            by_function=by_function,
            overall=overall,
            provenance={**self._run.provenance, "finished_at": utc_text(self._run.ended_at or datetime.now(UTC))},
            price=prepared.price,
            judge_price=prepared.judge_price,
            row_digests=prepared.row_digests,
            human=prepared.human,
            smoke_of=prepared.plan.n_runs if selected.smoke else None,
            n_planned=prepared.plan.n_runs,
            reasons=self._run.reasons,
            throttling=Throttling(throttle.pauses, throttle.paused_s, throttle.least, throttle.limit, engine.held_s),
            baseline=self._baseline_model(),
        )

    def _stop_text(self, stop: Stop, records: Sequence[RunRecord]) -> str:
        """Return the reason of a stop. Which errors were too many is only known once the runs in flight are done."""
        if stop.reason != "max_errors":
            return stop.text
        causes = causes_of(records, self._engine.pass_rule)
        return too_many(causes, len(records), self._engine.job.bounds.max_errors_text)

    def _baseline_model(self) -> ModelResults | None:
        """Return the results of the baseline's model, None if no run of it was selected."""
        other = self._prepared.baseline_model
        if other is None or not self._selected.of_baseline:
            return None
        return ModelResults(other.name, *self._summarize(self._selected.of_baseline), other.price)

    def _summarize(self, runs: Sequence[RunId]) -> tuple[Sequence[RunRecord], Mapping[str, Summary], Summary]:
        """Return the records of runs, the statistics of each function, and those of the runs as a whole."""
        records = results.records_of(runs, self._engine.ledger.records)
        return records, *results.summarize(records, self._engine.pass_rule, self._prepared.config.evaluation.n)

    def _compare(self) -> RowComparison | None:
        """Compare the rows with the baseline.

        None without a baseline, for a part of the plan, and after an early stop: the rows that it measured are a biased
        sample.
        """
        measured, stored, baseline = self._measured, self._prepared.baseline_results, self._measured.baseline
        allowed = next((-rule.minimum for rule in self._prepared.config.gates if rule.is_regression), 0.0)
        if self._selected.partial or measured.decided:
            return None
        if stored is not None:
            return comparison.compare(
                "baseline",
                shown(stored.path),
                matching.matched(measured.row_runs(), stored.row_runs()),
                started_at=stored.started_at,
                allowed=allowed,
                differs=differing_settings(
                    stored, published_config(measured.description, measured.pass_rule), self._prepared.redaction
                ),
            )
        if baseline is None or self._selected.lacks_baseline:
            return None
        rows = matching.matched_by_index(measured.row_runs(), measured.row_runs(baseline))
        stopped = self._engine.baseline_stopped
        return comparison.compare("baseline", baseline.model, rows, allowed=allowed, stopped=stopped)

    @property
    def _nothing_succeeded(self) -> bool:
        """True if the eval stopped for a cause that every run would meet, and all that ran did."""
        stop, records = self._engine.stopped, self._measured.records
        systemic = stop is not None and stop.reason == "systemic"
        return systemic and not any(record.rolled and record.boundary is None for record in records)

    def _verdict(self, rule: GateRule, compared: RowComparison | None) -> Verdict:
        verdict = undecided(rule, self._run)
        if verdict is not None:
            return verdict
        if self._nothing_succeeded:
            return gates.verdict_without_value(rule, "not measured", "no rollout succeeded before the eval stopped")
        if not rule.is_regression:
            return gates.decide(rule, results.runs_for(rule, self._measured.records, self._measured.pass_rule))
        if compared is None:  # stored rollouts of an eval that had no baseline
            return gates.verdict_without_value(rule, "not measured", "no run of the baseline's model is stored")
        return comparison.decide(rule, compared)

    def _since_previous(self) -> RowComparison | None:
        """Compare the rows with the previous run of the plan.

        None if one of them is not whole, or if they measured no common row.
        """
        last, measured = self._prepared.last, self._measured
        if last is None or not measured.whole:
            return None
        try:
            previous = read_earlier_results(last.path)
        except ResultsError as error:
            self._run.notices.add(f"an earlier run is ignored: {error}")
            return None
        rows = matching.matched(measured.row_runs(), previous.row_runs())
        compared = comparison.compare("previous run", last.path.parent.name, rows, started_at=last.started_at)
        return compared if compared.n_rows else None
