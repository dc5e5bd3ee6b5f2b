"""From the records of a closed engine to results: what they add up to, and what the gates say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.engine.actor import Engine
from pytest_osmosis.evals.prepared import Prepared, Source, subject_of
from pytest_osmosis.evals.selection import Selection
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results import files, results
from pytest_osmosis.results.results import Results, Side, Throttling
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts import comparison, gates
from pytest_osmosis.verdicts.comparison import Comparison
from pytest_osmosis.verdicts.gates import Verdict
from pytest_osmosis.verdicts.pass_rule import PassRule
from pytest_osmosis.verdicts.previous_run import Rescored, flips, turned


class Conclusion:
    """Makes the results of an eval and decides its gates; where it `updates_baseline` none compares them with that."""

    def __init__(self, prepared: Prepared, selection: Selection, engine: Engine, *, updates_baseline: bool) -> None:
        self._prepared = prepared
        self._selection = selection
        self._engine = engine
        self._updates_baseline = updates_baseline

    def results(self, provenance: Mapping[str, Any], duration_ms: float) -> Results:
        """The results of an engine that is closed, `duration_ms` after the first run began."""
        config, judging = self._prepared.config, self._engine.judging
        records = self._records(self._selection.own)
        by_function, overall = results.summarize(records, judging, config.evaluation.n)
        n_planned = self._prepared.plan.n_runs
        stop, ran = self._engine.stopped, all(record.status != "pending" for record in records)
        if stop is not None and (stop.reason == "closed" or (stop.reason == "decided" and ran)):
            stop = None
        source = self._prepared.source
        made = Results(
            subject=subject_of(self._prepared),
            judging=judging,
            records=records,
            partial=self._selection.partial,
            stopped=None if stop is None else stop.text,
            duration_ms=duration_ms if source is None else source.rollouts.took_ms,
            by_function=by_function,
            overall=overall,
            provenance=provenance,
            price=self._prepared.price,
            row_digests=self._prepared.row_digests,
            smoke_of=n_planned if self._selection.smoke else None,
            decided=stop is not None and stop.reason == "decided",
            throttling=self._throttling(),
            side=self._side(judging),
        )
        compared = self._compared(made)
        last = self._prepared.last
        return replace(
            made,
            comparison=compared,
            verdicts=[self._verdict(rule, made, compared) for rule in config.gates],
            flips=flips(last, made.shares()) if last is not None and made.whole else None,
            redecided=None if source is None else self._redecided(source, made, duration_ms),
        )

    def _records(self, runs: Iterable[RunId]) -> list[RunRecord]:
        return results.records_of(runs, self._engine.ledger.records)

    def _side(self, judging: PassRule) -> Side | None:
        """What the baseline's model made of its runs."""
        other = self._prepared.beside
        if other is None or not self._selection.of_baseline:
            return None
        records = self._records(self._selection.of_baseline)
        by_function, overall = results.summarize(records, judging, self._prepared.config.evaluation.n)
        return Side(other.name, records, by_function, overall, other.price)

    def _compared(self, made: Results) -> Comparison | None:
        """What became of the rows against the baseline; None without one, of a part of the plan, or of one that ended
        when its gates were decided: which rows it measured hung on how they came out."""
        stored, side = self._prepared.baseline, made.side
        allowed = next((-rule.minimum for rule in self._prepared.config.gates if is_loss(rule)), 0.0)
        if self._selection.partial or made.decided:
            return None
        if stored is not None:
            matched = comparison.matched(made.row_runs(), stored.rows)
            differs, since = self._prepared.differs, stored.started_at
            return comparison.compare(shown(stored.path), matched, started_at=since, allowed=allowed, differs=differs)
        if side is None or self._selection.lacks_baseline:
            return None
        matched = comparison.beside(made.row_runs(), made.row_runs(side))
        stopped = self._engine.baseline_stopped
        return comparison.compare(side.model, matched, allowed=allowed, stopped=stopped)

    def _verdict(self, rule: GateRule, made: Results, compared: Comparison | None) -> Verdict:
        if self._selection.partial:
            return gates.partial(rule, self._selection.part)
        if is_loss(rule):
            return self.regression(rule, compared)
        return gates.decide(rule, results.runs_for(rule, made.records, made.judging))

    def regression(self, rule: GateRule, compared: Comparison | None) -> Verdict:
        """The verdict of a gate on what was lost against the baseline."""
        if self._updates_baseline:
            return gates.not_decided(rule, "a new baseline is asked for")
        if self._selection.lacks_baseline:
            return gates.partial(
                rule, f"{len(self._selection.of_baseline):,} of {self._prepared.plan.n_runs:,} of the baseline's runs"
            )
        if compared is None:  # of a stored run without one
            return gates.not_measured(rule, "no run of the baseline's model is stored")
        return comparison.decide(rule, compared)

    def _throttling(self) -> Throttling:
        engine = self._engine
        paused = engine.throttle
        return Throttling(paused.pauses, paused.paused_s, paused.least, paused.limit, engine.held_s)

    def _redecided(self, source: Source, made: Results, duration_ms: float) -> Rescored:
        """What the verdicts came of, and against those before."""
        before = source.run.results
        found = turned(before, made.to_json()) if before is not None else ()
        file = source.run.folder / "results.json"
        kept = files.kept_path(file) if self._engine.decided else file
        previous = kept.name if before is not None else None
        return Rescored(source.rolled_out_at, duration_ms, self._engine.kept, previous, *found)


def is_loss(rule: GateRule) -> bool:
    """True for the gate on what was lost against the baseline."""
    return rule.metric == "max_regression"
