"""From the records of a closed engine to results: statistics, the comparison with the baseline, verdicts of gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pytest_osmosis.errors import ResultsError
from pytest_osmosis.evals import result_facts
from pytest_osmosis.evals.result_facts import planned_rules, planned_shard
from pytest_osmosis.evals.run import EvalRun
from pytest_osmosis.evals.run_directory import utc_text
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results import results
from pytest_osmosis.results.baseline_results import differing_settings
from pytest_osmosis.results.cassette_use import CassetteUse
from pytest_osmosis.results.conclude import Rules, compared_with_baseline, judged, since_previous, stop_of
from pytest_osmosis.results.publish import published_config
from pytest_osmosis.results.results import ModelResults, Results, Throttling
from pytest_osmosis.results.shards import ShardFacts
from pytest_osmosis.stats import Summary
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.verdicts.comparison import RowComparison


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
        self._rules = rules_of(run, self._measured)
        self.comparison = compared_with_baseline(self._measured, self._rules)

    def results(self, compared: RowComparison | None) -> Results:
        """Return the results, with the verdicts of gates and `compared` as the comparison."""
        measured = self._measured
        return replace(
            judged(measured, self._rules, compared),
            previous=self._since_previous(),
            rescored=self._prepared.source.rescored(measured, self._run),
        )

    def _measure(self) -> Results:
        """Return the results as far as they follow from the records alone."""
        prepared, selected, engine = self._prepared, self._selected, self._engine
        records, by_function, overall = self._summarize(selected.own)
        throttle, asks_models, limit = engine.throttle, prepared.source.asks_models, engine.job.bounds.max_errors_text
        stop = stop_of(engine.stopped, records, engine.pass_rule, limit, asks_models=asks_models)
        lost = {"lost_in_flight": engine.ledger.most_lost} if asks_models else {}
        return Results(
            description=prepared.description,
            pass_rule=engine.pass_rule,
            records=records,
            partial=selected.partial,
            stopped=self._lacking_text(records) if stop is None else stop.text,
            stop_reason=None if stop is None or stop.reason == "closed" else stop.reason,
            duration_ms=round(prepared.source.rollouts_took_ms(self._run.duration_ms), 3),  # as it is published
            by_function=by_function,
            overall=overall,
            provenance={
                **self._run.provenance,
                **lost,
                **({"shutdown_dates": dict(engine.shutdown_dates)} if engine.shutdown_dates else {}),
                "finished_at": utc_text(self._run.ended_at or datetime.now(UTC)),
            },
            price=prepared.prices[ModelTag.PRIMARY],
            judge_price=prepared.judge_price,
            row_digests=prepared.rows.digests,
            human=prepared.human,
            smoke_of=prepared.plan.n_runs if selected.smoke else None,
            n_planned=prepared.plan.n_runs,
            reasons=self._run.outcomes.reasons,
            shard=self._shard(),
            cassette=self._cassette_use(),
            throttling=Throttling(throttle.pauses, throttle.paused_s, throttle.least, throttle.limit, engine.held_s),
            baseline=self._baseline_model(),
        )

    def _cassette_use(self) -> CassetteUse | None:
        """Return the part of the cassette, or of the cache. Scoring rollouts of a replay again measures nothing new."""
        prepared, made = self._prepared, self._run.cassette
        then = prepared.source.cassette_then
        if prepared.models.cassette is None or made is None:
            return then
        cassette, unrecorded = prepared.models.cassette, made.unrecorded
        if asked := self._run.outcomes.unrecorded:
            unrecorded = {"provider": len(asked)}
        elif then is not None:
            unrecorded = then.unrecorded
        use = CassetteUse(cassette.mode, shown(cassette.path), made.digest, unrecorded=unrecorded)
        records = map(self._run.record, self._selected.runs)
        prices = prepared.prices
        return use.counting(
            records, self._engine.n_exchanges, lambda record: prices[record.run.model], prepared.judge_price
        )

    def _shard(self) -> ShardFacts | None:
        run, engine = self._run, self._engine
        code = {**run.prepared.source.rollout_code(engine.code), **engine.code.rewards}
        planned = planned_shard(run.prepared, run.selected, rules_of(run))
        return planned and replace(planned, baseline_stopped=engine.baseline_stopped, code=code)

    def _lacking_text(self, records: Sequence[RunRecord]) -> str | None:
        """Return that stored rollouts are missing, None if each run of the stored part of the plan has one."""
        if self._prepared.source.asks_models:
            return None
        lacking = [each for each in records if each.status == "pending" and each.run not in self._selected.unstored]
        if not lacking:
            return None
        before = self._prepared.source.status_before
        why = f"; that eval run {before['status']}: {before['reason']}" if before and before["reason"] else ""
        have = "has" if len(lacking) == 1 else "have"
        return f"{count(len(lacking))} of {plural(len(records), 'run')} {have} no rollout to score{why}"

    def _baseline_model(self) -> ModelResults | None:
        """Return the results of the baseline's model, None if no run of it was selected."""
        other = self._prepared.models.baseline
        if other is None or not self._selected.of_baseline:
            return None
        return ModelResults(
            other.name, *self._summarize(self._selected.of_baseline), self._prepared.prices[ModelTag.BASELINE]
        )

    def _summarize(self, runs: Sequence[RunId]) -> tuple[Sequence[RunRecord], Mapping[str, Summary], Summary]:
        """Return the records of runs, the statistics of each function, and those of the runs as a whole."""
        records = results.records_of(runs, self._engine.ledger.records)
        return records, *results.summarize(records, self._engine.pass_rule, self._prepared.config.evaluation.n)

    def _since_previous(self) -> RowComparison | None:
        try:
            return since_previous(self._measured, self._prepared.last)
        except ResultsError as error:
            self._run.notices.add(f"an earlier run is ignored: {error}")
            return None


def rules_of(run: EvalRun, measured: Results | None = None) -> Rules:
    """Return the rules of an eval run. Those that compare settings with the baseline's need what was `measured`."""
    prepared, stored = run.prepared, run.prepared.models.baseline_results
    return replace(
        planned_rules(prepared, run.selected, updates_baseline=run.updates_baseline),
        differs=()
        if stored is None or measured is None
        else differing_settings(stored, published_config(measured.description, measured.pass_rule), prepared.redaction),
        baseline_stopped=run.engine.baseline_stopped,
    )


def gates_decide(run: EvalRun) -> bool:
    """Return True if gates decide in place of single runs: now, or for a shard once all shards are merged."""
    return result_facts.gates_decide(run.selected, rules_of(run))
