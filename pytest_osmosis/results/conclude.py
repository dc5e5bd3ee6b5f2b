"""From the facts and the records of an eval run to its results: the comparisons, and the verdicts of gates.

Whoever has the records concludes here: an eval run that has ended, the merge of shards, and the rebuilding from a
journal. A `Conclusion` has what is measured, and the comparison with the baseline. Those of several evals are corrected
before gates are judged by them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.errors import ResultsError
from pytest_osmosis.formats.codec import Amount, Count, Moment, Positive, Share
from pytest_osmosis.formats.price import Price
from pytest_osmosis.record.lifecycle import Lifecycle, Stop, StopReason
from pytest_osmosis.record.manifest import PassRuleFields
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.entry_table import EntryTable
from pytest_osmosis.results.publish import published_config, redacted
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.results.results import (
    BaselineFile,
    EvalDescription,
    Rescored,
    Results,
    ShardFacts,
    Throttling,
    changed_rows,
    gate_value,
    of_records,
    range_for,
    row_runs,
    runs_for,
    too_many,
)
from pytest_osmosis.results.totals import CassetteUse
from pytest_osmosis.stats import holm
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts import comparison, gates
from pytest_osmosis.verdicts.comparison import BaselineComparison, ChangedRow
from pytest_osmosis.verdicts.gates import (
    UNDECIDED,
    Short,
    State,
    Verdict,
    needs_all,
    short_of,
    title_of,
    verdict_without_value,
)
from pytest_osmosis.verdicts.pass_rule import PassRule


class Rules(Struct, frozen=True):
    """The gates of an eval, and the reasons that keep it from deciding.

    `part` says which share of the plan the runs are, None for the whole. `baseline_part` says the same of the
    baseline's model. With `new_baseline` the runs become the baseline, so that nothing is compared with the old one.
    """

    gates: Sequence[GateRule] = ()
    part: str | None = None
    baseline_part: str | None = None
    new_baseline: bool = False

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


class EvalFacts(Rules, frozen=True, kw_only=True):
    """The facts that results need besides the events of runs. They are in the `loaded` event of each session.

    `session` is the time when it began. `selected` holds its runs: a model, an index, the first row and the number of
    rows. `previous` is the path of the results of the last whole run of the plan. Earlier sessions `took_ms`. `is_part`
    is true for a session that leaves out runs of earlier ones. If stored rollouts are scored again, `status_before` is
    the status of their eval run.
    """

    session: Moment
    description: EvalDescription
    pass_rule: PassRuleFields
    provenance: Mapping[str, Any]
    prices: Mapping[str, Price | None]
    baseline: str | None
    baseline_results: BaselineFile | None
    selected: Sequence[tuple[ModelTag, Count, Count, Count]]
    partial: bool
    smoke: bool
    n_planned: Count
    previous: str | None
    shard: ShardFacts | None
    max_errors: str
    took_ms: Amount
    is_part: bool = False
    status_before: Lifecycle | None

    @property
    def gates_decide(self) -> bool:
        """True if gates decide in place of single runs: now, or for a shard once all shards are merged."""
        return self.shard.decides if self.shard is not None else self.decide and not self.partial

    def measured(
        self,
        records: Iterable[RunRecord],
        pass_rule: PassRule,
        stop: Stop | None,
        end: FactsAtEnd,
        *,
        baseline_stopped: str | None,
        **more: Any,
    ) -> Results:
        """Return the results as far as they follow from the records alone, with `more` members."""
        made = of_records(self.description, pass_rule, records, self.prices, self.baseline)
        stop, shard = self._stop(stop, made), self.shard
        return replace(
            made,
            partial=self.partial,
            stopped=None if stop is None else stop.text,
            stop_reason=None if stop is None or stop.reason == "closed" else stop.reason,
            smoke_of=self.n_planned if self.smoke else None,
            n_planned=self.n_planned,
            shard=None if shard is None else replace(shard, baseline_stopped=baseline_stopped, code=end.shard_code),
            provenance=end.provenance,
            duration_ms=end.duration_ms,
            cassette=end.cassette,
            throttling=end.throttling,
            **more,
        )

    def _stop(self, stop: Stop | None, measured: Results) -> Stop | None:
        """Return why runs of a session that is over never began, None if each was performed that was to be.

        Which errors were more than `max_errors` is only known now: its text names them.
        """
        if stop is None or (stop.reason == "closed" and self.status_before is not None):  # no model was asked
            return None
        if stop.reason in ("decided", "closed") and measured.count("pending") == 0:
            return None
        if stop.reason != "max_errors":
            return stop
        return stop._replace(text=too_many(measured.causes, len(measured.records), self.max_errors))


class FactsAtEnd(Struct, frozen=True, kw_only=True):
    """The facts that no journal can tell about a session that has ended: times, answers of git, and what is known once
    all has been concluded: verdicts of plugins, p corrected for the other evals of its session, the comparison with
    verdicts before, and that with other entries. The manifest keeps them.
    """

    session: Moment
    provenance: Mapping[str, Any]
    cassette: CassetteUse | None
    duration_ms: Amount
    throttling: Throttling = field(default_factory=Throttling)
    judge_prices: Mapping[str, Price | None] = {}
    evals_compared: Positive = 1
    p_adjusted: Share | None = None
    shard_code: Mapping[str, str]
    verdicts: Sequence[Verdict] = ()
    rescored: Rescored | None = None
    changed_rows: Sequence[ChangedRow] = ()
    comparison: EntryTable | None = None

    def concluded(self, results: Results) -> FactsAtEnd:
        """Return these facts with those that the results tell."""
        compared, judges = results.comparison, results.judges
        return replace(
            self,
            judge_prices={} if judges is None else {name: judge.price for name, judge in judges.models.items()},
            evals_compared=1 if compared is None else compared.evals_compared,
            p_adjusted=None if compared is None else compared.p_adjusted,
            verdicts=[verdict for verdict in results.verdicts if verdict.rule is None],
            rescored=results.rescored,
            changed_rows=changed_rows(results, "rescored"),
            comparison=results.among,
        )


class Concluded(NamedTuple):
    """Results, and why the previous run could not be compared with them, None if it was, or if there is none."""

    results: Results
    unread: ResultsError | None


class Conclusion(Struct, frozen=True):
    """The results of an eval run before its gates are judged by `rules`: what is `measured`, and `compared` with its
    baseline.

    `lost` says why the results with which it was compared are not there any more.
    """

    measured: Results
    rules: Rules
    compared: BaselineComparison | None
    lost: str | None = None

    @classmethod
    def of(
        cls,
        measured: Results,
        rules: Rules,
        stored: PublishedResults | None = None,
        *,
        stopped: str | None = None,
        redaction: Redaction | None = None,
        lost: str | None = None,
    ) -> Conclusion:
        """Compare the rows with those of the results that are `stored`, else of the baseline's model.

        `stopped` is the reason why that model was stopped early. Nothing is compared without a baseline, for a part of
        the plan, and after an early stop: the rows that it measured are a biased sample.
        """
        allowed, other = next((-rule.minimum for rule in rules.gates if rule.is_regression), 0.0), measured.baseline
        compared, compares = None, rules.part is None and not measured.decided
        if compares and stored is not None:
            here = published_config(measured.description, measured.pass_rule)
            compared = comparison.against_baseline(
                shown(stored.path),
                comparison.matched(row_runs(measured), stored.row_runs()),
                started_at=stored.provenance["started_at"],
                allowed=allowed,
                differs=differing_settings(stored, here, redaction or Redaction()),
            )
        elif compares and other is not None and rules.baseline_part is None:
            rows = comparison.matched(row_runs(measured), row_runs(measured, other))
            compared = comparison.against_baseline(other.model, rows, allowed=allowed, stopped=stopped)
        return cls(measured, rules, compared, lost)

    def results(self, compared: BaselineComparison | None, previous: str | Path | None) -> Concluded:
        """Return the results with `compared` as the comparison, also with the `previous` results of the plan."""
        own = replace(self, compared=compared)
        made = replace(self.measured, verdicts=list(map(own._verdict, self.rules.gates)))
        if compared is not None:
            made = replace(
                made,
                comparison=compared.found,
                changed_rows=compared.rows.changed("baseline"),
                baseline_stopped=compared.stopped,
            )
        try:
            return Concluded(_since_previous(made, previous), None)
        except ResultsError as error:
            return Concluded(made, error)

    def _verdict(self, rule: GateRule) -> Verdict:
        measured = self.measured
        verdict = self.rules.undecided(rule)
        if verdict is not None:
            return verdict
        succeeded = any(each.rolled and each.boundary is None for each in measured.records)
        if measured.stop_reason == "systemic" and not succeeded:  # every run would meet its cause, and all that ran did
            return verdict_without_value(rule, "not measured", "no rollout succeeded before the eval stopped")
        if not rule.is_regression:
            runs = runs_for(rule, measured.records, measured.pass_rule)
            return gates.decide(rule, runs, range_for(rule, measured.pass_rule))
        if self.compared is None:
            return verdict_without_value(rule, "not measured", self.lost or "no run of the baseline's model is stored")
        return comparison.decide(rule, self.compared)


def corrected(comparisons: Sequence[BaselineComparison | None]) -> list[BaselineComparison | None]:
    """Return the comparisons of several evals with adjusted p; None for an eval without a baseline.

    Each comparison is a test of its own, so the more evals there are, the more often a p below 0.05 occurs by chance.
    Holm's correction keeps the chance of any false regression at 5%.
    """
    p_values = [each.found.p_value for each in comparisons if each is not None and each.found.p_value is not None]
    adjusted = iter(holm(p_values))  # of one p, the same
    return [
        each if each is None or each.found.p_value is None else each.among(len(p_values), next(adjusted))
        for each in comparisons
    ]


def _since_previous(made: Results, previous: str | Path | None) -> Results:
    """Return the results with the comparison with the previous run of the plan, whose results are at a path.

    They have none if the eval run is not whole, or if they measured no common row. Raises `ResultsError` if the
    previous ones cannot be read.
    """
    if previous is None or not made.whole:
        return made
    last = read_results(Path(previous))
    if not last.is_whole or last.provenance["plan_digest"] != made.provenance["plan_digest"]:
        raise ResultsError(f"{shown(last.path)}: are no longer the results of a whole run of this plan")
    rows = comparison.compare(comparison.matched(row_runs(made), last.row_runs()))
    if rows.paired is None:
        return made
    found = comparison.against_last_run(rows, last.path.parent.name, last.provenance["started_at"])
    return replace(made, previous=found, changed_rows=[*rows.changed("last_run"), *made.changed_rows])


# -- stored results as a baseline; only those of a whole plan can be one -----------------------------------

COMPARED = {
    "name": "the eval",
    "model": "the model",
    "n_runs": "runs per row",
    "eval_fns": "the functions that score",
    "thresholds": "the thresholds",
    "decide": "what decides",
    "score_ranges": "the ranges of scores",
    "sampling": "the sampling",
    "system_prompt": "the system prompt",
    "judge": "the judge",
}
"""Keys of the published `config` that must be equal for a fair comparison, with their names in notes."""


def why_unfit(stored: PublishedResults) -> str | None:
    """Return why results cannot be a baseline, None if they can."""
    if stored.replayed:
        return "was replayed from a cassette, not measured"
    if stored.partial:
        return "holds only a part of its eval"
    if stored.status != "finished":
        return f"its eval {'failed' if stored.status == 'failed' else 'was stopped'} ({stored.stop_reason})"
    if stored.summary.pending:
        return f"{plural(stored.summary.pending, 'run')} of its eval never ran"
    return None if stored.summary.measured else "no run of its eval was measured"


def differing_settings(stored: PublishedResults, config: Mapping[str, Any], redaction: Redaction) -> tuple[str, ...]:
    """Return the settings that differ in `config`, in words: "the model: openai/gpt-5.4, here openai/gpt-5.4-mini".

    Stored settings are redacted, so those of `config` are redacted first.
    """
    here = json.loads(json.dumps(redacted({key: config.get(key) for key in COMPARED}, redaction)))
    pairs = ((name, stored.config.get(key), here[key]) for key, name in COMPARED.items())
    return tuple(f"{name}: {_written(old)}, here {_written(new)}" for name, old, new in pairs if old != new)


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


# -- if an eval was measured: if not, neither "passed" nor "failed" would be true --------------------------

SYSTEMIC: tuple[StopReason, ...] = ("systemic", "journal")
"""Reasons to stop that every further run would meet."""
LIMITS: tuple[StopReason, ...] = ("max_errors", "max_tokens", "max_cost_usd", "max_duration_s")
"""Reasons to stop that `[limits]` sets."""
CUT_SHORT: tuple[StopReason, ...] = (*LIMITS, "requested")
"""Reasons to stop after which only gates that are decided already have a verdict."""


def is_not_measured(
    results: Results,
    stopped_by: StopReason | None,
    *,
    gated: bool,
    measured: bool,
    elsewhere: Collection[RunId] = frozenset(),
) -> bool:
    """Return True if an eval has no verdict: nothing was `measured`, runs are missing, or a gate was not measured.

    `--maxfail` has an exit status of its own. `gated` is True if gates decide. The runs `elsewhere` may be missing.
    """
    if stopped_by == "maxfail":
        return False
    lacks = any(each.status == "pending" and each.run not in elsewhere for each in results.records)
    return (
        not measured
        or stopped_by in (*SYSTEMIC, "max_errors")
        or ((lacks or stopped_by in CUT_SHORT) and not all_gates_decided(results, gated))
        or (gated and any(verdict.state == "not measured" for verdict in results.verdicts))
    )


def any_answer(results: Results) -> bool:
    """Return True if a run counts as an answer; the baseline's runs count only if nothing else was selected."""
    if results.records or results.baseline is None:
        return results.measured > 0
    return any(map(results.pass_rule.measured, results.baseline.records))


def all_gates_decided(results: Results, gated: bool) -> bool:
    """Return True if gates of the config decide, and the runs that are missing cannot change their verdicts."""
    deciding = {verdict.state for verdict in results.verdicts if verdict.rule is not None} - UNDECIDED
    return gated and bool(deciding) and "not measured" not in deciding


# -- exact curtailment: an eval may end once no missing run can change a verdict of its gates --------------


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
    """Follows the runs of a whole plan until its gates are decided. `why_impossible` must be None for the gates.

    The bounds are those that gates use for unmeasured runs, so the verdicts equal those of the whole eval, in whatever
    order its runs are done. Statistics of the runs that were done are biased, and results say so.
    """

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
        if self.state is not None or min(self._short) > 0:
            return
        self._short = short_of(self.rule, [list(row.values()) for row in self._rows.values()])
        if self._short.passes == 0:
            self.state = "holds"
        elif self._short.fails == 0:
            self.state = "fails"
