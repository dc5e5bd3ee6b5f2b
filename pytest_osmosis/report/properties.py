"""What other tools read of a run: properties beside its test, in JUnit XML and in pytest-json-report."""

from __future__ import annotations

from pytest_osmosis.outcomes import Judging, kind_of
from pytest_osmosis.records import RunRecord

Property = tuple[str, str | float]


def properties_of(record: RunRecord, judging: Judging, cost_usd: float | None) -> list[Property]:
    """Name and value of each; what is not known is left out.

    `osmosis.outcome` is what became of the run whatever a gate makes of its test: passed, failed, skipped, pending, or
    the boundary that kept it from being scored. `osmosis.score` is the score of the one function that decides; where
    there are several functions, `osmosis.score.<function>` is each one's.
    """
    found: list[Property] = [
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


def _outcome(record: RunRecord, judging: Judging) -> str:
    return "pending" if record.status == "pending" else judging.boundary(record) or kind_of(record, judging)
