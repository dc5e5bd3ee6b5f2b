"""Verdicts, comparisons and records, made again from the members of a published results.json.

The members are valid against results.schema.json. A comparison read back knows the numbers of its rows, not their
runs, which results do not keep: its pairs are empty. It has no more of them than the eval run has rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_notes import NO_NOTES
from pytest_osmosis.record.run_record import Imported, RewardError, RunRecord, judge_use, replicas_of
from pytest_osmosis.results.cassette_use import CassetteUse
from pytest_osmosis.results.judge_totals import PriceOf
from pytest_osmosis.results.results import Rescored
from pytest_osmosis.stats import Interval, Paired
from pytest_osmosis.verdicts.comparison import ChangedRow, Matched, Pair, RowComparison
from pytest_osmosis.verdicts.gates import Power, Verdict

_METRIC = re.compile(r"(?P<metric>[a-z_]+?)(?:_(?P<k>[0-9]+))?")
_NO_PAIR = Pair(0, 0, (), ())


def price_of(data: Mapping[str, Any] | None) -> Price | None:
    return None if data is None else Price.from_json(data)


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
