"""Records and results made by hand, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.formats.price import Price
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import Boundary, RewardError, RunRecord
from pytest_osmosis.results import results
from pytest_osmosis.results.results import EvalDescription, Rescored, Results
from pytest_osmosis.stats import Interval
from pytest_osmosis.verdicts import gates
from pytest_osmosis.verdicts.comparison import BaselineComparison, Matched, against_last_run, compare
from pytest_osmosis.verdicts.pass_rule import PassRule

A, B = "rewards:a", "rewards:b"
BROKE = RewardError("ValueError: no", "Traceback ...")
USAGE = {"input_tokens": 11, "output_tokens": 7}


def rolled(row: int = 0, run: int = 0, **fields: Any) -> RunRecord:
    """A run whose rollout is done and not scored yet."""
    record = RunRecord(RunId(row, run), attempt=1, started=True, rolled=True, duration_ms=450.5, usage=USAGE)
    return replace(record, **fields)


def finished(
    scores: Mapping[str, float],
    row: int = 0,
    run: int = 0,
    *,
    errors: Mapping[str, RewardError] | None = None,
    **fields: Any,
) -> RunRecord:
    """A run that was scored."""
    return rolled(row, run, scored=True, scores=scores, scorer_errors=errors or {}, scoring_ms=2.25, **fields)


def failed(boundary: Boundary, row: int = 0, run: int = 0, **fields: Any) -> RunRecord:
    """A run whose rollout broke at a boundary."""
    return rolled(row, run, boundary=boundary, **{"error": "what happened", "usage": None, **fields})


def removed(row: int = 0, run: int = 0) -> RunRecord:
    """A run that its grader took out."""
    return rolled(row, run, scored=True, removed=True)


def pending(row: int = 0, run: int = 0, reason: str | None = None) -> RunRecord:
    """A run that never ran."""
    return RunRecord(RunId(row, run), skip_reason=reason)


def results_of(
    records: Sequence[RunRecord],
    *,
    scorers: Sequence[str] = (A,),
    decide: str = "all",
    thresholds: Mapping[str, float] | None = None,
    n: int = 1,
    minimum: float | None = None,
    stopped: str | None = None,
    duration_ms: float = 3210.0,
    extra: Mapping[str, Any] | None = None,
    price: Price | None = None,
    previous: Matched | None = None,
    baseline: Sequence[RunRecord] | None = None,
    baseline_price: Price | None = None,
    score_ranges: Mapping[str, tuple[float, float]] | None = None,
) -> Results:
    """The results of an eval whose selected runs came to `records`; `minimum` is that of a gate on the pass rate;
    `baseline` are the records of a baseline's model."""
    pass_rule = PassRule(tuple(scorers), 1.0, thresholds or {}, decide, score_ranges or {})
    rules = [] if minimum is None else [GateRule("pass_rate", minimum)]
    return replace(
        results.of_records(
            EvalDescription("x", "vendor/some-model", n, extra or {}),
            pass_rule,
            [*records, *(baseline or ())],
            {ModelTag.PRIMARY: price, ModelTag.BASELINE: baseline_price},
            None if baseline is None else "other",
        ),
        stopped=stopped,
        duration_ms=duration_ms,
        verdicts=[gates.decide(rule, results.runs_for(rule, records, pass_rule)) for rule in rules],
        provenance={"python": "3.x", "run_dir": ".osmosis/runs/x-1"},
        row_digests={record.run.row: f"{record.run.row:016x}" for record in records},
        **(last_run(previous) if previous is not None else {}),
    )


def last_run(rows: Matched, run: str = "x-1") -> dict[str, Any]:
    """The members of results that are compared with the last run."""
    compared = compare(rows)
    last = against_last_run(compared, run, "2026-11-20T14:03:59.000+00:00")
    return {"previous": last, "changed_rows": compared.changed("last_run")}


def with_baseline(compared: BaselineComparison) -> dict[str, Any]:
    """The members of results that are compared with a baseline."""
    return {"comparison": compared.found, "changed_rows": compared.rows.changed("baseline")}


def rescored(
    rows: Matched | None = None, *, duration_ms: float = 1.0, kept: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """The members of results whose rollouts were scored again, and compared with the verdicts before."""
    compared = compare(rows or Matched([]))
    scoring = Rescored(
        rolled_out_at="2026-11-20T14:03:59.000+00:00",
        duration_ms=duration_ms,
        kept=kept or {},
        previous=None if rows is None else "results.1.json",
        **compared.counts,
    )
    return {"rescored": scoring, "changed_rows": compared.changed("rescored")}


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def of_baseline(record: RunRecord) -> RunRecord:
    """The same of the baseline's model."""
    return replace(record, run=record.run._replace(model=ModelTag.BASELINE))


CONFIG: Mapping[str, Any] = {
    "path": "configs/eval/x.toml",
    "dataset": "data/x.jsonl",
    "selection": "all 4",
    "batch_size": 8,
    "sampling": {"temperature": 0.5, "seed": None},
    "overridden": [],
}
PROVENANCE: Mapping[str, Any] = {
    "run_dir": ".osmosis/runs/x-1",
    "plan_digest": "0" * 32,
    "started_at": "2026-11-20T14:03:59.000+00:00",
    "finished_at": "2026-11-20T14:04:59.000+00:00",
    "pytest_osmosis": "0.1.0",
    "python": "3.x",
    "platform": "Linux",
    "dataset_sha256": "0" * 64,
}


def published(records: Sequence[RunRecord], plan_digest: str = PROVENANCE["plan_digest"], **options: Any) -> Any:
    """Published results that are valid against the schema."""
    made = results_of(records, extra=CONFIG, **options).to_json()
    return {**made, "provenance": {**PROVENANCE, "plan_digest": plan_digest}}


MANIFEST: Mapping[str, Any] = {
    "schema_version": 1,
    "eval": "x",
    "started_at": "2026-01-01T00:00:00.123+00:00",
    "folder": "/evals/.osmosis/runs/x-1",
    "workspace": "/evals",
    "config_text": None,
    "typed": [{"table": "evaluation", "key": "n", "value": 2, "below": [], "as_toml": False}],
    "plan": {
        "name": "x",
        "path": "/evals/x.toml",
        "dataset": "/evals/data/x.jsonl",
        "spans": [[0, 2, 1]],
        "n": 2,
        "selection": "all 2 rows",
        "named": [],
        "granularity": "run",
        "baseline": False,
        "steps": [],
    },
    "subject": {
        "model": "demo/arithmetic",
        "n": 2,
        "extra": {
            "path": "x.toml",
            "dataset": "data/x.jsonl",
            "selection": "all 2 rows",
            "batch_size": 1,
            "sampling": {},
            "overridden": [],
        },
    },
    "target": {"provider": "demo", "model": "arithmetic", "client": "embedded"},
    "baseline": None,
    "pass_rule": {"pass_threshold": 1.0, "thresholds": {}, "decide": "all"},
    "gates": [],
    "prices": {"primary": None},
    "smoke": False,
    "shard": None,
    "inputs": {},
    "cassette": None,
    "input_salt": "00",
    "dataset_sha256": "0" * 64,
    "columns": {},
    "timeouts": {},
    "versions": {},
    "entry": None,
    "plan_digest": "0" * 32,
}
"""The manifest of a run of two rows."""
