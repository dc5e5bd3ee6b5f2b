"""Results: records -> statistics -> the published JSON. A projection; the journal is the authority.

The keys `config`, `summary` and `rows` are those of Osmosis' eval mode, with their meaning there; what we add stands
beside them. Runs without a score count 0.0 in mean, std, min, max and pass rates; skipped and pending ones are in no
denominator.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis import stats
from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE, RunRecord
from pytest_osmosis.verdicts.comparison import Comparison, RowRuns
from pytest_osmosis.verdicts.gates import Runs, Verdict
from pytest_osmosis.verdicts.pass_rule import PassRule
from pytest_osmosis.verdicts.previous_run import Flips, Rescored, Share

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Subject:
    """What was evaluated, for the `config` object: `model` as typed; `extra` holds what we add to the page's keys."""

    name: str
    model: str
    n: int
    extra: Mapping[str, Any] = field(default_factory=dict)


class EqualAnswers(NamedTuple):
    """How many rows have several answers, and in how many of them all are equal, byte by byte.

    `lost` and `lost_equal` are the same of the rows in which not every run passed: right answers are often equal, wrong
    ones are so where the model is not sampled.
    """

    rows: int
    equal: int
    lost: int
    lost_equal: int


@dataclass(frozen=True, slots=True)
class Throttling:
    """What kept an eval from asking as fast as it could.

    A server without room had everyone wait `paused_s` in `pauses`, and `least_in_flight` of `limit` rollouts at once
    was the least that was left; `held_s` says for how long each limit of `[execution]` held what could have been sent.
    """

    pauses: int = 0
    paused_s: float = 0.0
    least_in_flight: int = 1
    limit: int = 1
    held_s: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it is published."""
        return {
            "pauses": self.pauses,
            "paused_s": round(self.paused_s, 3),
            "least_in_flight": self.least_in_flight,
            "held_s": {name: round(held_s, 3) for name, held_s in self.held_s.items()},
        }


@dataclass(frozen=True, slots=True)
class Side:
    """What the baseline's model made of the same rows: its name as typed, its selected runs, what they add up to."""

    model: str
    records: Sequence[RunRecord]
    by_function: Mapping[str, stats.Summary]
    overall: stats.Summary
    price: Price | None = None


@dataclass(frozen=True)
class Results:
    """The results of one eval run.

    `records` hold every selected run, in plan order, but those of the baseline's model, which are on its `side`.
    `stopped` is why the eval stopped early, None where it did not; `decided` where that was because its gates were,
    whatever the runs that are missing would have been. `by_function` summarizes each function's scores, `overall` the
    runs by `decide` (its scores are 1.0 and 0.0). `price` is the model's, None where it is unknown. `row_digests` are
    those of the rows' content, `flips` what became of the rows since the last run of the same plan, `comparison` what
    became of them against the baseline. `redecided` is None unless the rollouts were stored ones. `smoke_of` is how
    many runs the plan has of which these are a smoke test, None where they are none. Counts and sums over all records
    are made once: a summary, its file and a page each ask for them.
    """

    subject: Subject
    judging: PassRule
    records: Sequence[RunRecord]
    partial: bool
    stopped: str | None
    duration_ms: float
    by_function: Mapping[str, stats.Summary]
    overall: stats.Summary
    verdicts: Sequence[Verdict] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = None
    row_digests: Mapping[int, str] = field(default_factory=dict)
    flips: Flips | None = None
    comparison: Comparison | None = None
    redecided: Rescored | None = None
    side: Side | None = None
    smoke_of: int | None = None
    decided: bool = False
    throttling: Throttling = field(default_factory=Throttling)

    def count(self, status: str) -> int:
        """How many selected runs have this status."""
        return sum(record.status == status for record in self.records)

    def boundaries(self) -> dict[str, int]:
        """How many runs failed to be scored, by boundary."""
        counts: dict[str, int] = {}
        for record in self.records:
            boundary = self.judging.boundary(record)
            if boundary is not None:
                counts[boundary] = counts.get(boundary, 0) + 1
        return counts

    @functools.cached_property
    def passed(self) -> int:
        """How many runs passed."""
        return sum(self.judging.passed(record) for record in self.records)

    @property
    def whole(self) -> bool:
        """True where all that was planned ran, so that these results can be held against others of the same plan."""
        return not self.partial and self.stopped is None and self.count("pending") == 0

    @functools.cached_property
    def measured(self) -> int:
        """How many runs count as an answer."""
        return sum(self.judging.measured(record) for record in self.records)

    @functools.cached_property
    def truncated(self) -> list[RunRecord]:
        """Runs whose last answer was cut off at the bound on its tokens."""
        return [record for record in self.records if record.rolled and record.finish_reason == "length"]

    @functools.cached_property
    def answered_rows(self) -> EqualAnswers:
        """The rows with several answers."""
        answered = by_row([record for record in self.records if record.status == "finished" and record.answer])
        several = [records for records in answered.values() if len(records) > 1]
        lost = [records for records in several if not all(map(self.judging.passed, records))]
        return EqualAnswers(len(several), _n_equal(several), len(lost), _n_equal(lost))

    @functools.cached_property
    def all_records(self) -> Sequence[RunRecord]:
        """Those of all models: what was paid for."""
        return [*self.records, *(self.side.records if self.side is not None else ())]

    @functools.cached_property
    def total_tokens(self) -> int:
        """The sum of the tokens that are known, of all models."""
        return tokens_of(self.all_records)

    @functools.cached_property
    def usage(self) -> dict[str, int]:
        """The sum of each count of tokens that is known, by name, of all models."""
        total: dict[str, int] = {}
        for record in self.all_records:
            for name, count in (record.usage or {}).items():
                total[name] = total.get(name, 0) + count
        return total

    def shares(self) -> list[Share]:
        """How often each row with a measured run passed, in order."""
        shares = []
        for row, records in by_row(self.records).items():
            passed = [self.judging.passed(record) for record in records if self.judging.measured(record)]
            if passed:
                shares.append(Share(self.row_digests[row], sum(passed) / len(passed)))
        return shares

    def row_runs(self, side: Side | None = None) -> list[RowRuns]:
        """Whether each run of each row passed, in order; those that their grader took out are left out."""
        records = self.records if side is None else side.records
        rows = by_row([record for record in records if record.status != "skipped"])
        return [RowRuns(row, self.row_digests[row], list(map(self._passed, records))) for row, records in rows.items()]

    def _passed(self, record: RunRecord) -> bool | None:
        measured = record.status != "pending" and self.judging.measured(record)
        return self.judging.passed(record) if measured else None

    @functools.cached_property
    def costs_usd(self) -> Mapping[RunId, float]:
        """What runs' rollouts cost, of all models; those whose cost nobody knows are not in it."""
        costs = {record.run: self._cost_usd(record) for record in self.all_records}
        return {run: cost for run, cost in costs.items() if cost is not None}

    def _cost_usd(self, record: RunRecord) -> float | None:
        price = self.side.price if self.side is not None and record.run.is_baseline else self.price
        return None if price is None else price.cost_usd(record.usage)

    def cost_of(self, records: Sequence[RunRecord]) -> float | None:
        """The sum of the costs that are known, None where none is."""
        known = [self.costs_usd[record.run] for record in records if record.run in self.costs_usd]
        return round(math.fsum(known), 12) if known else None

    @functools.cached_property
    def cost_usd(self) -> float | None:
        """The sum of the costs that are known, of all models, None where none is."""
        return self.cost_of(self.all_records)

    @functools.cached_property
    def n_cost_unknown(self) -> int:
        """How many rollouts have a cost that nobody knows."""
        return sum(record.rolled and record.run not in self.costs_usd for record in self.all_records)

    def to_json(self) -> dict[str, Any]:
        """The published object, strict JSON."""
        members = self._members().items()
        return {key: list(value) if isinstance(value, Iterator) else value for key, value in members}

    def text(self) -> Iterator[str]:
        """What `to_json` gives as the text of a file, piece by piece: for many rows it is large."""
        return text_of(self._members())

    def _members(self) -> dict[str, Any]:
        """The published object, its rows made one by one."""
        ran = [record for record in self.all_records if record.status != "pending"]
        rows = by_row(ran)
        return {
            "schema_version": SCHEMA_VERSION,
            "status": "stopped" if self.stopped else "finished",
            **({"stop_reason": self.stopped} if self.stopped else {}),
            "partial": self.partial,
            "config": {
                **published_config(self.subject, self.judging),
                "price": None if self.price is None else self.price.to_json(),
                **({"baseline_model": self.side.model} if self.side is not None else {}),
            },
            "summary": {
                "total_rows": len(rows),
                "total_runs": len(ran),
                "eval_fns": {name: _summary(summary) for name, summary in self.by_function.items()},
                "total_tokens": self.total_tokens,
                "total_duration_ms": round(self.duration_ms, 3),
                "pass_rate": self.overall.pass_rate,
                "pass_rate_interval": _interval(self.overall.pass_rate_interval),
                "selected": len(self.records),
                **{status: self.count(status) for status in ("finished", "failed", "skipped", "pending")},
                "measured": self.measured,
                "boundaries": self.boundaries(),
                "retries": sum(record.retries for record in self.records),
                "rolled_out_again": sum(record.attempt > 1 for record in self.records),
                "truncated": len(self.truncated),
                "rows_of_equal_answers": self.answered_rows.equal,
                "usage": self.usage,
                "cost_usd": self.cost_usd,
                "cost_unknown": self.n_cost_unknown,
                "throttling": self.throttling.to_json(),
            },
            **({"model_summaries": self._summaries()} if self.side is not None else {}),
            "provenance": dict(self.provenance),
            "last_run": None if self.flips is None else self.flips.to_json(),
            "baseline": None if self.comparison is None else self.comparison.to_json(),
            "redecided": None if self.redecided is None else self.redecided.to_json(),
            "rows": (
                {
                    "row_index": row,
                    "row_digest": self.row_digests[row],
                    "runs": [self._run(record) for record in sorted(records, key=_primary_first)],
                }
                for row, records in rows.items()
            ),
            "pending": [
                {
                    "row_index": record.run.row,
                    "run_index": record.run.index,
                    **self._tag(record.run),
                    "reason": record.skip_reason,
                }
                for record in self.all_records
                if record.status == "pending"
            ],
            "gates": [
                {
                    "gate": verdict.title,
                    "state": verdict.state,
                    "value": verdict.value,
                    "finding": verdict.text,
                    "metric": verdict.rule.name if verdict.rule else None,
                    "function": verdict.rule.function if verdict.rule else None,
                    "minimum": verdict.rule.minimum if verdict.rule else None,
                    "rule": verdict.rule.rule if verdict.rule else None,
                    "compared": verdict.compared,
                    "power": verdict.power.chance if verdict.power else None,
                }
                for verdict in self.verdicts
            ],
        }

    def _tag(self, run: RunId) -> dict[str, str]:
        """Whose run it is, where there are two models."""
        return {"model_tag": tag_of(run)} if self.side is not None else {}

    def _summaries(self) -> list[dict[str, Any]]:
        """Each model's numbers, where there are two."""
        if self.side is None:
            return []
        own = Side(self.subject.model, self.records, self.by_function, self.overall, self.price)
        return [self._model_summary(own, "primary"), self._model_summary(self.side, "baseline")]

    def _model_summary(self, side: Side, tag: str) -> dict[str, Any]:
        ran = [record for record in side.records if record.status != "pending"]
        return {
            "model": side.model,
            "model_tag": tag,
            "total_runs": len(ran),
            "total_tokens": tokens_of(ran),
            "total_duration_ms": round(math.fsum(record.duration_ms for record in ran), 3),
            "eval_fns": {name: _summary(summary) for name, summary in side.by_function.items()},
            "pass_rate": side.overall.pass_rate,
            "pass_rate_interval": _interval(side.overall.pass_rate_interval),
            "measured": sum(map(self.judging.measured, ran)),
            "cost_usd": self.cost_of(ran),
            "price": None if side.price is None else side.price.to_json(),
        }

    def _run(self, record: RunRecord) -> dict[str, Any]:
        boundary = self.judging.boundary(record)
        error = record.error
        if error is None and record.scorer_errors:
            error = "; ".join(f"{name}: {failed.message}" for name, failed in record.scorer_errors.items())
        return {
            "run_index": record.run.index,
            **self._tag(record.run),
            "success": record.status != "failed",
            "scores": dict(record.scores) if record.status == "finished" else {},
            "duration_ms": record.duration_ms,
            "tokens": record.tokens,
            "status": record.status,
            "passed": self.judging.passed(record),
            **({"boundary": boundary} if boundary else {}),
            **({"error": error} if error else {}),
            **({"infra": True} if boundary in INFRASTRUCTURE else {}),
            "scoring_ms": round(record.scoring_ms, 3),
            "usage": dict(record.usage) if record.usage is not None else None,
            "cost_usd": self.costs_usd.get(record.run),
            "retries": record.retries,
            "finish_reason": record.finish_reason,
            "attempt": record.attempt,
        }


def published_config(subject: Subject, judging: PassRule) -> dict[str, Any]:
    """What was evaluated, and who decides."""
    return {
        "model": subject.model,
        "n_runs": subject.n,
        "pass_threshold": judging.pass_threshold,
        "eval_fns": list(judging.scorers),
        "name": subject.name,
        "thresholds": {name: judging.threshold(name) for name in judging.scorers},
        "decide": judging.decide,
        **subject.extra,
    }


def tag_of(run: RunId) -> str:
    """Whose run it is, as it is published."""
    return "baseline" if run.is_baseline else "primary"


def tokens_of(records: Sequence[RunRecord]) -> int:
    """The sum of the tokens that are known."""
    return sum(record.tokens or 0 for record in records)


def _primary_first(record: RunRecord) -> tuple[bool, int]:
    return record.run.is_baseline, record.run.index


def _n_equal(rows: Sequence[Sequence[RunRecord]]) -> int:
    return sum(len({record.answer for record in records}) == 1 for records in rows)


def summarize(
    records: Sequence[RunRecord], judging: PassRule, n: int
) -> tuple[dict[str, stats.Summary], stats.Summary]:
    """Statistics of each function's scores, and of the runs as a whole."""
    counted = by_row([record for record in records if record.status not in ("pending", "skipped")])
    by_function = {}
    for name in judging.scorers:
        attempts = {row: [_attempt(record, judging, name) for record in group] for row, group in counted.items()}
        by_function[name] = stats.summarize(attempts, n)
    decided = {row: [_decided(record, judging) for record in group] for row, group in counted.items()}
    return by_function, stats.summarize(decided, n)


def runs_for(rule: GateRule, records: Sequence[RunRecord], judging: PassRule) -> Runs:
    """What a gate is decided by, row by row: the values of its runs. Those that their grader took out are left out."""
    counted = by_row([record for record in records if record.status != "skipped"])
    return [[gate_value(rule, record, judging) for record in row] for row in counted.values()]


def gate_value(rule: GateRule, record: RunRecord, judging: PassRule) -> float | None:
    """What a run is to a gate: its function's score, or 1.0 for passed and 0.0 for not; None where not measured.

    Runs that broke by model, agent or time are 0.0; infrastructure, scorer errors and pending runs are not measured.
    """
    function = judging.deciding[0] if rule.metric == "mean" and rule.function is None else rule.function
    attempt = _decided(record, judging) if function is None else _attempt(record, judging, function)
    if not attempt.measured or record.status == "pending":
        return None
    return attempt.score if rule.metric == "mean" else float(attempt.passed)


def by_row(records: Sequence[RunRecord]) -> dict[int, list[RunRecord]]:
    """Records by row index, in order."""
    rows: dict[int, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: record.run):
        rows.setdefault(record.run.row, []).append(record)
    return rows


def records_of(runs: Iterable[RunId], records: Mapping[RunId, RunRecord]) -> list[RunRecord]:
    """The record of each selected run; one that no event speaks of is pending."""
    return [records.get(run) or RunRecord(run) for run in runs]


def obstacle(path: Path) -> str | None:
    """What will keep a file from being written at `path`, None where nothing is seen to."""
    if path.is_dir():
        return "it is a folder"
    if path.exists() and not path.is_file():
        return "it is no ordinary file"
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written to"


def aside(path: Path) -> Path:
    """Where results are kept once others take their place: beside them, numbered from 1."""
    numbered = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in itertools.count(1))
    return next(free for free in numbered if not free.exists())


def set_aside(path: Path) -> None:
    """Keep the results at `path`, if there are any, before others take their place."""
    if path.exists():
        shutil.copy2(path, aside(path))


def write(path: Path, text: Iterable[str]) -> Path:
    """Write atomically: a reader sees the old file or the whole new one; a link is followed. Gives the path."""
    file = path.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with scratch.open("w", encoding="utf-8") as pieces:
            pieces.writelines(text)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def text_of(results: Mapping[str, Any]) -> Iterator[str]:
    """Indented JSON with a line for each item of a list or iterator, in pieces.

    Indenting runs key by key takes ten times as long.
    """
    before = "{\n"
    for key, value in results.items():
        yield f"{before}  {json.dumps(key)}: "
        if isinstance(value, list | Iterator):
            yield from _listed(value)
        else:
            yield json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")
        before = ",\n"
    yield "\n}\n" if results else "{\n\n}\n"


def _listed(items: Iterable[Any]) -> Iterator[str]:
    before = "[\n"
    for item in items:
        yield f"{before}    {json.dumps(item, allow_nan=False)}"
        before = ",\n"
    yield "\n  ]" if before == ",\n" else "[]"


def _attempt(record: RunRecord, judging: PassRule, name: str) -> stats.RunScore:
    unscored = record.status == "failed" and record.boundary not in INFRASTRUCTURE
    return stats.RunScore(
        score=record.scores.get(name, 0.0) if record.status == "finished" else 0.0,
        passed=record.status == "finished" and judging.met(record, name),
        measured=name in record.scores or unscored,
    )


def _decided(record: RunRecord, judging: PassRule) -> stats.RunScore:
    passed = judging.passed(record)
    return stats.RunScore(1.0 if passed else 0.0, passed, judging.measured(record))


def _summary(summary: stats.Summary) -> dict[str, Any]:
    return {
        "mean": summary.mean,
        "std": summary.std,
        "min": summary.min,
        "max": summary.max,
        "median": summary.median,
        "pass_rate": summary.pass_rate,
        "standard_error": summary.se,
        "mean_interval": _interval(summary.mean_interval),
        "pass_rate_interval": _interval(summary.pass_rate_interval),
        **{f"p{p}": summary.percentiles.get(p) for p in stats.PERCENTILES},
        "variance_within_rows": summary.within,
        "variance_between_rows": summary.between,
        "mixed_rows": summary.n_mixed,
        "measured": summary.n_measured,
        **{f"pass_at_{k}": value for k, value in summary.pass_at.items()},
        **{f"pass_hat_{k}": value for k, value in summary.pass_hat.items() if k > 1},
    }


def _interval(interval: stats.Interval | None) -> dict[str, Any] | None:
    return None if interval is None else interval._asdict()
