"""The properties of a test in JUnit's XML, which pytest-json-report shows too."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.stats import mean
from pytest_osmosis.text.safe import escaped, one_line
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of

Property = tuple[str, str | float]


def properties_of(
    records: Sequence[RunRecord], pass_rule: PassRule, costs_usd: Sequence[float | None]
) -> list[Property]:
    """Return names and values for a run, or for the runs of a row that are reported together; not what is unknown.

    `osmosis.outcome` is the outcome of the test, even if gates decide about it: passed, failed, skipped, pending (of a
    row if any run never ran), or the first boundary that kept a run from being scored, if none failed. `osmosis.score`
    is the score of the function that decides, if only one does; with several functions, `osmosis.score.<function>` is
    the score of each. `osmosis.model_tag` is "baseline" for runs of the baseline's model. `osmosis.reason.<function>`
    is the reason that a function gave for its score, `osmosis.metric.<source>.<name>` a metric of a function or of the
    agent, whose source is "rollout"; a row has neither.

    Scores of a row are means: a run without a score counts as the lower of 0.0 and the lowest score of its row, and
    runs that never ran or were taken out do not count. Duration, tokens and cost are sums of known values.
    """
    several = len(records) > 1
    counted = [record for record in records if record.status not in ("pending", "skipped")]
    scores = dict(records[0].scores)
    if several:
        scores = {}
        for name in pass_rule.scorers if counted else ():
            floor = pass_rule.unscored(counted, name)
            scores[name] = mean(
                [each.scores.get(name, floor) if each.status == "finished" else floor for each in counted]
            )
    tokens = [record.tokens for record in records if record.tokens is not None]
    costs = [cost for cost in costs_usd if cost is not None]
    outcomes = [
        "pending" if each.status == "pending" else pass_rule.boundary(each) or kind_of(each, pass_rule)
        for each in records
    ]
    broken = [outcome for outcome in outcomes if outcome not in ("passed", "failed", "skipped", "pending")]
    outcome = next(each for each in ("failed", *broken, "pending", "passed", "skipped") if each in outcomes)
    properties: list[Property] = [("osmosis.model_tag", "baseline")] if records[0].run.is_baseline else []
    properties += [("osmosis.outcome", outcome), ("osmosis.pass", "true" if outcome == "passed" else "false")]
    if several:
        n_passed = sum(pass_rule.passed(record) for record in records)
        properties += [("osmosis.runs", len(records)), ("osmosis.runs_passed", n_passed)]
    if len(pass_rule.deciding) == 1 and pass_rule.deciding[0] in scores:
        properties.append(("osmosis.score", scores[pass_rule.deciding[0]]))
    if len(pass_rule.scorers) > 1:
        properties += [(f"osmosis.score.{name}", score) for name, score in scores.items()]
    if any(record.rolled for record in records):
        properties.append(("osmosis.duration_ms", sum(record.duration_ms for record in records)))
    properties += [("osmosis.tokens", sum(tokens))] if tokens else []
    properties += [("osmosis.cost_usd", math.fsum(costs))] if costs else []
    if not several:
        properties += [(f"osmosis.reason.{name}", escaped(reason)) for name, reason in records[0].reasons.items()]
        for source, metrics in records[0].metrics.items():
            properties += [(f"osmosis.metric.{source}.{one_line(name)}", value) for name, value in metrics.items()]
    return properties
