"""What other tools read of a run, or a row: properties beside its test, in JUnit XML and in pytest-json-report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of

Property = tuple[str, str | float]


def properties_of(record: RunRecord, judging: PassRule, cost_usd: float | None) -> list[Property]:
    """Name and value of each; what is not known is left out.

    `osmosis.outcome` is what became of the run whatever a gate makes of its test: passed, failed, skipped, pending, or
    the boundary that kept it from being scored. `osmosis.score` is the score of the one function that decides; where
    there are several functions, `osmosis.score.<function>` is each one's. `osmosis.model_tag` is "baseline" for runs of
    the baseline's model.
    """
    found: list[Property] = [
        *_tag(record),
        ("osmosis.outcome", _outcome(record, judging)),
        ("osmosis.pass", "true" if judging.passed(record) else "false"),
    ]
    if len(judging.deciding) == 1 and judging.deciding[0] in record.scores:
        found.append(("osmosis.score", record.scores[judging.deciding[0]]))
    if len(judging.scorers) > 1:
        found += [(f"osmosis.score.{name}", score) for name, score in record.scores.items()]
    if record.rolled:
        found.append(("osmosis.duration_ms", record.duration_ms))
    if record.tokens is not None:
        found.append(("osmosis.tokens", record.tokens))
    if cost_usd is not None:
        found.append(("osmosis.cost_usd", cost_usd))
    return found


def properties_of_row(
    records: Sequence[RunRecord], judging: PassRule, costs_usd: Sequence[float | None]
) -> list[Property]:
    """The same of a row whose runs are reported together.

    `osmosis.outcome` is that of the row's test (pending where runs never ran; the first run's boundary where some were
    not scored and none failed). Scores are means, in which a run without a score counts 0.0 and one that never ran or
    was taken out not at all; duration, tokens and cost are sums of what is known.
    """
    outcome = _outcome_of_row(records, judging)
    found: list[Property] = [
        *_tag(records[0]),
        ("osmosis.outcome", outcome),
        ("osmosis.pass", "true" if outcome == "passed" else "false"),
        ("osmosis.runs", len(records)),
        ("osmosis.runs_passed", sum(judging.passed(record) for record in records)),
    ]
    counted = [record for record in records if record.status not in ("pending", "skipped")]
    if counted and len(judging.deciding) == 1:
        found.append(("osmosis.score", _mean(counted, judging.deciding[0])))
    if counted and len(judging.scorers) > 1:
        found += [(f"osmosis.score.{name}", _mean(counted, name)) for name in judging.scorers]
    if any(record.rolled for record in records):
        found.append(("osmosis.duration_ms", sum(record.duration_ms for record in records)))
    tokens = [record.tokens for record in records if record.tokens is not None]
    known = [cost for cost in costs_usd if cost is not None]
    found += [("osmosis.tokens", sum(tokens))] if tokens else []
    found += [("osmosis.cost_usd", math.fsum(known))] if known else []
    return found


def _outcome_of_row(records: Sequence[RunRecord], judging: PassRule) -> str:
    outcomes = [_outcome(record, judging) for record in records]
    broken = [outcome for outcome in outcomes if outcome not in ("passed", "failed", "skipped", "pending")]
    candidates = ("failed", *broken, "pending", "passed", "skipped")
    return next(outcome for outcome in candidates if outcome in outcomes)


def _tag(record: RunRecord) -> list[Property]:
    return [("osmosis.model_tag", "baseline")] if record.run.is_baseline else []


def _mean(records: Sequence[RunRecord], name: str) -> float:
    return math.fsum(record.scores.get(name, 0.0) for record in records if record.status == "finished") / len(records)


def _outcome(record: RunRecord, judging: PassRule) -> str:
    return "pending" if record.status == "pending" else judging.boundary(record) or kind_of(record, judging)
