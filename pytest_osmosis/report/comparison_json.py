"""The comparison of two eval runs as JSON, for other programs: what `pytest-osmosis runs compare --json` prints."""

from __future__ import annotations

from typing import Any

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.answers import ScoredAnswer
from pytest_osmosis.results.compared_runs import ComparedRate, ComparedRuns, Side
from pytest_osmosis.results.run_differences import config_diff, run_differences
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.comparison import ChangedRow, Passes
from pytest_osmosis.verdicts.pass_rule import kind_of, reason_of

SCHEMA_VERSION = 1


def comparison_json(compared: ComparedRuns) -> dict[str, Any]:
    """Return the comparison as JSON. Raises `JournalError` if an answer cannot be read."""
    return {
        **comparison_numbers(compared),
        "differences": [each._asdict() for each in run_differences(compared.a, compared.b)],
        "config_diff": config_diff(compared.a, compared.b),
        "changed_rows": [_row(compared, row) for row in compared.changed],
    }


def comparison_numbers(compared: ComparedRuns) -> dict[str, Any]:
    """Return the comparison as JSON without its rows and the differences of both eval runs; this reads no journal."""
    rows, paired = compared.rows, compared.rows.paired
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _side(compared.a, compared.rate_a),
        "b": _side(compared.b, compared.rate_b),
        "rows": {
            "compared": rows.n_rows,
            "only_a": rows.matched.removed,
            "only_b": rows.matched.added,
            "other_content": rows.matched.changed,
            "not_measured": rows.n_unmeasured,
        },
        "better": 0 if paired is None else paired.better,
        "worse": 0 if paired is None else paired.worse,
        "difference": None if paired is None else paired.difference,
        "difference_interval": None if paired is None else paired.interval._asdict(),
        "p_value": None if paired is None else paired.p,
        "test": None if paired is None else paired.test,
        "least_p": compared.least_p,
        "caveats": list(compared.caveats),
        "meaning": compared.meaning,
    }


def _side(side: Side, rate: ComparedRate) -> dict[str, Any]:
    summary, overall = side.summary, side.results.overall
    judges = summary.get("judges")
    return {
        "run": None if side.is_file else side.name,
        "path": shown(side.path),
        "state": side.document["status"],
        "started_at": side.provenance.get("started_at"),
        "eval": side.config["name"],
        "model": side.config["model"],
        "n_runs": side.config["n_runs"],
        "rows": len(side.records),
        "counted": overall.n_runs,
        "measured": overall.n_measured,
        "passed": side.results.passed,
        "pass_rate": rate.value,
        "pass_rate_interval": rate.interval._asdict(),
        "tokens": summary["total_tokens"],
        "cost_usd": summary["cost_usd"],
        "cost_unknown": summary["cost_unknown"],
        "judges_cost_usd": None if judges is None else judges["cost_usd"],
        "duration_ms": summary["total_duration_ms"],
    }


def _row(compared: ComparedRuns, row: ChangedRow) -> dict[str, Any]:
    return {
        "change": "worse" if row.is_worse else "better",
        "a": _row_of(compared.a, row.old_index, row.old),
        "b": _row_of(compared.b, row.row_index, row.new),
    }


def _row_of(side: Side, index: int, passes: Passes) -> dict[str, Any]:
    return {
        "row_index": index,
        "passed": passes.passed,
        "measured": passes.measured,
        "runs": [_run(side, record) for record in side.records[index]],
    }


def _run(side: Side, record: RunRecord) -> dict[str, Any]:
    answer = None
    if side.stored is not None and record.rolled:
        rollout = side.stored.rollout(record)
        answer = ScoredAnswer.of(rollout.get("messages", ()), rollout.get("n_prompt", 0), None).text
    return {
        "run": str(record.run),
        "outcome": kind_of(record, side.rule) if record.status != "pending" else "pending",
        "reason": one_line(reason_of(record, side.rule)),
        "scores": dict(record.scores),
        "answer": answer,
    }
