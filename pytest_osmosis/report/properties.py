"""The properties of a run or a row that JUnit XML and pytest-json-report store with its test."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.stats import mean
from pytest_osmosis.text.safe import escaped, one_line
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of

Property = tuple[str, str | float]


def properties_of(record: RunRecord, pass_rule: PassRule, cost_usd: float | None) -> list[Property]:
    """Return names and values, without those that are not known.

    `osmosis.outcome` is the outcome of the run, even if gates decide about its test: passed, failed, skipped, pending,
    or the boundary that kept it from being scored. `osmosis.score` is the score of the function that decides, if only
    one does; with several functions, `osmosis.score.<function>` is the score of each. `osmosis.model_tag` is "baseline"
    for runs of the baseline's model. `osmosis.reason.<function>` is the reason that a function gave for its score,
    `osmosis.metric.<source>.<name>` a metric of a function or of the agent, whose source is "rollout".
    """
    properties: list[Property] = [
        *_tag(record),
        ("osmosis.outcome", _outcome(record, pass_rule)),
        ("osmosis.pass", "true" if pass_rule.passed(record) else "false"),
    ]
    if len(pass_rule.deciding) == 1 and pass_rule.deciding[0] in record.scores:
        properties.append(("osmosis.score", record.scores[pass_rule.deciding[0]]))
    if len(pass_rule.scorers) > 1:
        properties += [(f"osmosis.score.{name}", score) for name, score in record.scores.items()]
    if record.rolled:
        properties.append(("osmosis.duration_ms", record.duration_ms))
    if record.tokens is not None:
        properties.append(("osmosis.tokens", record.tokens))
    if cost_usd is not None:
        properties.append(("osmosis.cost_usd", cost_usd))
    properties += [(f"osmosis.reason.{name}", escaped(reason)) for name, reason in record.reasons.items()]
    for source, metrics in record.metrics.items():
        properties += [(f"osmosis.metric.{source}.{one_line(name)}", value) for name, value in metrics.items()]
    return properties


def properties_of_row(
    records: Sequence[RunRecord], pass_rule: PassRule, costs_usd: Sequence[float | None]
) -> list[Property]:
    """Return names and values for a row whose runs are reported together.

    `osmosis.outcome` is the outcome of the row's test: pending if runs never ran, the first boundary if runs were not
    scored and none failed. Scores are means: a run without a score counts as the lower of 0.0 and the lowest score of
    its row, and runs that never ran or were taken out do not count. Duration, tokens and cost are sums of known values.
    """
    outcome = _outcome_of_row(records, pass_rule)
    properties: list[Property] = [
        *_tag(records[0]),
        ("osmosis.outcome", outcome),
        ("osmosis.pass", "true" if outcome == "passed" else "false"),
        ("osmosis.runs", len(records)),
        ("osmosis.runs_passed", sum(pass_rule.passed(record) for record in records)),
    ]
    counted = [record for record in records if record.status not in ("pending", "skipped")]
    if counted and len(pass_rule.deciding) == 1:
        properties.append(("osmosis.score", _mean(counted, pass_rule, pass_rule.deciding[0])))
    if counted and len(pass_rule.scorers) > 1:
        properties += [(f"osmosis.score.{name}", _mean(counted, pass_rule, name)) for name in pass_rule.scorers]
    if any(record.rolled for record in records):
        properties.append(("osmosis.duration_ms", sum(record.duration_ms for record in records)))
    tokens = [record.tokens for record in records if record.tokens is not None]
    costs = [cost for cost in costs_usd if cost is not None]
    properties += [("osmosis.tokens", sum(tokens))] if tokens else []
    properties += [("osmosis.cost_usd", math.fsum(costs))] if costs else []
    return properties


def _outcome_of_row(records: Sequence[RunRecord], pass_rule: PassRule) -> str:
    outcomes = [_outcome(record, pass_rule) for record in records]
    broken = [outcome for outcome in outcomes if outcome not in ("passed", "failed", "skipped", "pending")]
    candidates = ("failed", *broken, "pending", "passed", "skipped")
    return next(outcome for outcome in candidates if outcome in outcomes)


def _tag(record: RunRecord) -> list[Property]:
    return [("osmosis.model_tag", "baseline")] if record.run.is_baseline else []


def _mean(records: Sequence[RunRecord], pass_rule: PassRule, name: str) -> float:
    floor = pass_rule.unscored(records, name)
    return mean([record.scores.get(name, floor) if record.status == "finished" else floor for record in records])


def _outcome(record: RunRecord, pass_rule: PassRule) -> str:
    return "pending" if record.status == "pending" else pass_rule.boundary(record) or kind_of(record, pass_rule)
