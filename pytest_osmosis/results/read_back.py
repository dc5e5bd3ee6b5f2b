"""Results, made again from a published results.json: records, verdicts, comparisons, and all of them.

The members are valid against results.schema.json. A comparison read back knows the numbers of its rows, not their
runs, which results do not keep: its pairs are empty. It has no more of them than the eval run has rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_notes import NO_NOTES
from pytest_osmosis.record.run_record import Imported, RewardError, RunRecord, judge_use, replicas_of
from pytest_osmosis.results import results
from pytest_osmosis.results.entry_table import EntryPlace
from pytest_osmosis.results.read import PublishedResults
from pytest_osmosis.results.results import EvalDescription, Rescored, Results, ShardFacts, Throttling
from pytest_osmosis.results.totals import CassetteUse, HumanScores, PriceOf, price_of, shown_name
from pytest_osmosis.stats import Interval, Paired
from pytest_osmosis.verdicts.comparison import ChangedRow, Matched, Pair, RowComparison
from pytest_osmosis.verdicts.gates import Power, Verdict

_METRIC = re.compile(r"(?P<metric>[a-z_]+?)(?:_(?P<k>[0-9]+))?")
_NO_PAIR = Pair(0, 0, (), ())


def price_of_judge(extra: Mapping[str, Any], prices: Mapping[str, Any]) -> PriceOf:
    """Return the price of the judge that the `extra` of an eval's description names, None for other judges."""
    judge, price = extra.get("judge", {}), price_of(prices.get("judge"))
    return lambda use: price if (use.model, use.base_url) == (judge.get("model"), judge.get("base_url")) else None


def cassette_of(data: Mapping[str, Any] | None) -> CassetteUse | None:
    return None if data is None else CassetteUse(**{each.name: data[each.name] for each in fields(CassetteUse)})


def run_id_of(row: int, run: Mapping[str, Any]) -> RunId:
    return RunId(row, run["run_index"], ModelTag(run.get("model_tag", ModelTag.PRIMARY)))


def agrees(record: RunRecord, run: Mapping[str, Any]) -> bool:
    """Return True if the journal's record of a run says what the results say of it."""
    scores = dict(record.scores) if record.status == "finished" else {}
    return (record.status, scores) == (run["status"], run["scores"])


def record_of(id: RunId, run: Mapping[str, Any]) -> RunRecord:
    """Return the record of a published run, for a journal that lacks the run's events."""
    failed, error = run["status"] == "failed", run.get("error")
    errors = {
        name: RewardError(each["message"], boundary=each["boundary"]) for name, each in run.get("errors", {}).items()
    }
    return RunRecord(
        id,
        attempt=run["attempt"],
        repeated=run.get("repeated", False),
        started=True,
        rolled=True,
        scored=run["status"] == "finished",
        removed=run["status"] == "skipped",
        scores=run["scores"],
        scorer_errors=errors,
        boundary=run.get("boundary", "agent") if failed else None,
        error=error or "" if failed else None,
        duration_ms=run["duration_ms"],
        scoring_ms=run["scoring_ms"],
        usage=run["usage"],
        retries=run["retries"],
        bound=run.get("bound"),
        finish_reason=run["finish_reason"],
        answer=run.get("answer"),
        notes=NO_NOTES.add(run),
        judge_uses=tuple(map(judge_use, run.get("judges", ()))),
        replicas=replicas_of(run.get("replicas")),
        imported=Imported(run["imported_from"]) if "imported_from" in run else None,
    )


def pending_record_of(id: RunId, run: Mapping[str, Any]) -> RunRecord:
    """Return the record of a published run that never ended."""
    record = RunRecord(id, started=run["started"], skip_reason=run["reason"])
    rollout = run.get("rollout")
    if rollout is None:
        return record
    return record._replace(
        attempt=rollout["attempt"],
        repeated=rollout.get("repeated", False),
        rolled=True,
        duration_ms=rollout["duration_ms"],
        usage=rollout["usage"],
        retries=rollout["retries"],
        replicas=replicas_of(rollout.get("replicas")),
        finish_reason=rollout["finish_reason"],
        judge_uses=tuple(map(judge_use, rollout.get("judges", ()))),
    )


def verdict_of(gate: Mapping[str, Any]) -> Verdict:
    power, n_rows = gate["power"], gate.get("power_rows")
    return Verdict(
        gate["gate"],
        gate["state"],
        gate["finding"],
        gate["value"],
        _rule_of(gate),
        gate["compared"],
        None if power is None or n_rows is None else Power(power, n_rows),
    )


def _rule_of(gate: Mapping[str, Any]) -> GateRule | None:
    if gate["metric"] is None or gate["minimum"] is None or gate["rule"] is None:
        return None
    name = _METRIC.fullmatch(gate["metric"])
    if name is None:
        return None
    k = None if name["k"] is None else int(name["k"])
    metric: Any = name["metric"]
    return GateRule(metric, gate["minimum"], gate["rule"], k, gate["function"])


def previous_of(data: Mapping[str, Any], n_rows: int, changed: Sequence[ChangedRow]) -> RowComparison:
    """Return the comparison with the last run of the plan."""
    matched = Matched([_NO_PAIR] * min(data["rows"], n_rows), added=data["unmatched"])
    return RowComparison(
        "previous run", data["run"], data["started_at"], matched, _paired(data), p=data["p_value"], changed_rows=changed
    )


def comparison_of(data: Mapping[str, Any], n_rows: int, changed: Sequence[ChangedRow], allowed: float) -> RowComparison:
    """Return the comparison with the baseline. `allowed` is the loss that is not a regression."""
    return RowComparison(
        "baseline",
        data["baseline"],
        data["started_at"],
        Matched(
            [_NO_PAIR] * min(data["rows"] + data["unmeasured"], n_rows), data["added"], data["removed"], data["changed"]
        ),
        _paired(data) if data["rows"] and data["difference"] is not None else None,
        data["pass_rate"],
        data["baseline_pass_rate"],
        1.0 if data["p_adjusted"] is None else data["p_adjusted"],
        data["evals_compared"],
        allowed,
        tuple(data["differs"]),
        changed_rows=changed,
    )


def rescored_of(data: Mapping[str, Any], n_rows: int, changed: Sequence[ChangedRow]) -> Rescored:
    compared = None
    if data["previous"] is not None and data["rows"]:
        changes = Paired(data["rows"], data["better"], data["worse"], 0.0, None, _point(0.0), 1.0, "")
        matched = Matched([_NO_PAIR] * min(data["rows"], n_rows))
        compared = RowComparison("verdicts before", data["previous"], None, matched, changes, changed_rows=changed)
    return Rescored(data["rolled_out_at"], data["duration_ms"], data["kept"], compared)


def _paired(data: Mapping[str, Any]) -> Paired:
    interval = data.get("difference_interval")
    between = _point(data["difference"]) if interval is None else Interval.from_json(interval)
    return Paired(
        data["rows"], data["better"], data["worse"], data["difference"], None, between, data["p_value"], data["test"]
    )


def _point(value: float) -> Interval:
    return Interval(value, value, "")


# -- whole results: records and their statistics, comparisons and verdicts ---------------------------------

NOTHING: Mapping[RunId, RunRecord] = {}
_OWN_CONFIG = frozenset(
    {
        *("model", "n_runs", "pass_threshold", "eval_fns", "name", "thresholds", "decide", "score_ranges"),
        *("price", "baseline_model"),
    }
)
"""Keys of the published config that `EvalDescription` does not keep under `extra`."""


def results_of(read: PublishedResults, known: Mapping[RunId, RunRecord] = NOTHING) -> Results:
    """Return results as they were before they were published, with the records that are `known` from a journal.

    Results keep only the numbers of the rows that comparisons compared: see `read_back`.
    """
    data, config, pass_rule = read.document, read.config, read.pass_rule
    records = list(_records(data, known))
    other = next((each for each in data.get("model_summaries", ()) if each["model_tag"] == ModelTag.BASELINE), None)
    throttling = data["summary"]["throttling"]
    shard = None if read.shard is None else ShardFacts.from_json(data["shard"])
    previous, compared, rescored = data["last_run"], data["baseline"], data["rescored"]
    changed = read.changed_rows
    n_rows = len({record.run.row for record in records})
    verdicts = [verdict_of(gate) for gate in data["gates"]]
    allowed = [-rule.minimum for verdict in verdicts if (rule := verdict.rule) is not None and rule.is_regression]
    made = results.of_records(
        EvalDescription(
            config["name"],
            config["model"],
            config["n_runs"],
            {key: value for key, value in config.items() if key not in _OWN_CONFIG},
        ),
        pass_rule,
        records,
        price_of(config["price"]),
        other and other["model"],
        other and price_of(other["price"]),
    )
    return replace(
        made,
        partial=read.partial,
        stopped=read.stop_reason,
        duration_ms=round(read.duration_s * 1000, 3),
        verdicts=verdicts,
        provenance={key: value for key, value in data["provenance"].items() if key != "cassette"},
        row_digests={
            row["row_index"]: row["row_digest"] for row in (*data["pending"], *data["rows"]) if "row_digest" in row
        },
        human=_human_scores(data),
        previous=None if previous is None else previous_of(previous, n_rows, changed.get("last_run", ())),
        comparison=None
        if compared is None
        else comparison_of(compared, n_rows, changed.get("baseline", ()), next(iter(allowed), 0.0)),
        rescored=None if rescored is None else rescored_of(rescored, n_rows, changed.get("rescored", ())),
        smoke_of=data["smoke_of"],
        stop_reason=data["stopped_by"],
        n_planned=len(made.records) if shard is None else shard.planned_runs,
        shard=shard,
        throttling=Throttling(
            throttling["pauses"],
            throttling["paused_s"],
            throttling["least_in_flight"],
            config["batch_size"],
            throttling["held_s"],
        ),
        judge_price=_judge_price(data["summary"].get("judges")),
        cassette=cassette_of(data["provenance"].get("cassette")),
        among=EntryPlace.from_json(data.get("comparison")),
    )


def _judge_price(judges: Mapping[str, Any] | None) -> PriceOf:
    """Return the prices of judges that results contain."""
    prices = {name: price_of(sums["price"]) for name, sums in judges["models"].items()} if judges is not None else {}
    return lambda use: prices.get(shown_name(use))


def _records(data: Mapping[str, Any], known: Mapping[RunId, RunRecord]) -> Iterator[RunRecord]:
    """Yield the records of all selected runs; those that are `known` from a journal, if it agrees with the results."""
    for row in data["rows"]:
        for run in row["runs"]:
            id = run_id_of(row["row_index"], run)
            record = known.get(id)
            yield record if record is not None and agrees(record, run) else record_of(id, run)
    for run in data["pending"]:
        id = run_id_of(run["row_index"], run)
        record = known.get(id)
        if record is not None and record.status == "pending":
            yield record._replace(skip_reason=run["reason"])
        else:
            yield pending_record_of(id, run)


def _human_scores(data: Mapping[str, Any]) -> HumanScores | None:
    """Return the scores by humans that results hold, None if the eval had none."""
    published = data["calibration"]
    if published is None:
        return None
    rows = (*data["rows"], *data["pending"])
    by_row = {row["row_index"]: row["human_score"] for row in rows if row.get("human_score") is not None}
    return HumanScores(published["column"], by_row, published["tolerance"])
