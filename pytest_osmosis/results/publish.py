"""The published JSON of results, whose schema is results.schema.json, and the files that it is written to.

The keys `config`, `summary` and `rows` are those of Osmosis' eval mode, with the same meaning; all others are ours.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from pytest_osmosis import stats
from pytest_osmosis.files import private
from pytest_osmosis.formats.codec import builtin, encode
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import INFRASTRUCTURE, RunRecord
from pytest_osmosis.results.read import (
    SCHEMA_VERSION,
    PendingRun,
    PublishedRow,
    PublishedRun,
    UnscoredRollout,
    same_facts,
)
from pytest_osmosis.results.results import (
    EvalDescription,
    ModelResults,
    Results,
    Throttling,
    by_row,
    end_of,
    equal_answers,
    n_cost_unknown,
    tokens_of,
)
from pytest_osmosis.results.totals import cost_of_judges, judge_fields, present, replica_totals, replicas_json
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.verdicts.pass_rule import PassRule, error_of


def published(results: Results) -> dict[str, Any]:
    """Return the published object, strict JSON."""
    members = _members(results).items()
    return {key: encode(list(value)) if isinstance(value, Iterator) else value for key, value in members}


def published_head(results: Results) -> dict[str, Any]:
    """Return the published object without rows, pending runs and changed rows, of which it may have very many."""
    head: dict[str, Any] = encode(_head(results))
    return head


OWN_VALUES = frozenset(
    {
        "status",
        "boundary",
        "model_tag",
        "run_dir",
        "eval_fns",
        "scores",
        "thresholds",
        "score_ranges",
        "decide",
        "granularity",
        "against",
        "change",
        "stopped_by",
        "imported_from",
    }
)
"""Keys whose values are words of ours, or names by which other parts of the results are found."""


def published_text(results: Results, redaction: Redaction) -> Iterator[str]:
    """Yield the published object as the text of a file, piece by piece, because it is large for many rows."""

    def line(item: Any) -> str:
        text = _strict(plain := builtin(item))
        return _strict(redacted(plain, redaction)) if redaction.may_be_in(text.encode()) else text

    members = _members(results).items()
    return text_of(
        {key: value if isinstance(value, list | Iterator) else redacted(value, redaction) for key, value in members},
        line,
    )


def redacted(value: Any, redaction: Redaction) -> Any:
    """Return a part of the published object without secrets."""
    return redaction.value(value, unchanged=OWN_VALUES)


_strict = partial(json.dumps, allow_nan=False)


def text_of(members: Mapping[str, Any], line: Callable[[Any], str] = _strict) -> Iterator[str]:
    """Yield indented JSON with one line, made by a function, for each item of a list or iterator.

    `json.dump` with an indent takes ten times as long.
    """
    before = "{\n"
    for key, value in members.items():
        yield f"{before}  {json.dumps(key)}: "
        if isinstance(value, list | Iterator):
            yield from _lines_of(value, line)
        else:
            yield json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n  ")
        before = ",\n"
    yield "\n}\n" if members else "{\n\n}\n"


def _lines_of(items: Iterable[Any], line: Callable[[Any], str]) -> Iterator[str]:
    before = "[\n"
    for item in items:
        yield f"{before}    {line(item)}"
        before = ",\n"
    yield "\n  ]" if before == ",\n" else "[]"


def published_config(description: EvalDescription, pass_rule: PassRule) -> dict[str, Any]:
    """Return the settings that were evaluated, and the rule by which runs pass."""
    return {
        "model": description.model,
        "n_runs": description.n,
        "pass_threshold": pass_rule.pass_threshold,
        "eval_fns": list(pass_rule.scorers),
        "name": description.name,
        "thresholds": {name: pass_rule.threshold(name) for name in pass_rule.scorers},
        "decide": pass_rule.decide,
        **present(score_ranges={name: list(ends) for name, ends in pass_rule.score_ranges.items()}),
        **description.extra,
    }


def published_settings(results: Results) -> dict[str, Any]:
    """Return the same of results, with the price of the model and the name of the other one."""
    return {
        **published_config(results.description, results.pass_rule),
        "price": results.price,
        **present(baseline_model=results.baseline and results.baseline.model),
    }


def _head(results: Results) -> dict[str, Any]:
    several = zip(ModelTag, results.models, strict=True) if results.baseline is not None else ()
    return {
        "schema_version": SCHEMA_VERSION,
        **end_of(results).to_json(),
        "smoke_of": results.smoke_of,
        **present(shard=results.shard),
        "partial": results.partial,
        "config": published_settings(results),
        "summary": _summary(results),
        **present(model_summaries=[_model_summary(results, tag, model) for tag, model in several]),
        "provenance": {**results.provenance, **present(cassette=results.cassette)},
        "last_run": results.previous,
        "baseline": results.comparison,
        "rescored": results.rescored,
        **present(comparison=results.among),
        "gates": results.verdicts,
    }


def _members(results: Results) -> dict[str, Any]:
    """Return the members of the published object; those with a struct for each row or run are iterators."""
    return {
        **published_head(results),
        "rows": _rows(results),
        "pending": (_pending(results, record) for record in results.all_records if record.status == "pending"),
        "changed_rows": iter(results.changed_rows),
    }


def _summary(results: Results) -> dict[str, Any]:
    ended = _ended(results.all_records)
    reason = end_of(results).reason
    early = bool(reason) and len(ended) < len(results.all_records)
    return {
        "total_rows": len({record.run.row for record in ended}),
        "total_runs": len(ended),
        "stopped_early": early,
        **present(stop_reason=early and reason),
        "eval_fns": {name: _statistics(summary) for name, summary in results.by_function.items()},
        "total_tokens": results.total_tokens,
        "total_duration_ms": round(results.duration_ms, 3),
        "pass_rate": results.overall.pass_rate,
        "pass_rate_interval": results.overall.pass_rate_interval,
        "selected": len(results.records),
        **{status: results.count(status) for status in ("finished", "failed", "skipped", "pending")},
        "measured": results.measured,
        "boundaries": results.boundaries(),
        "causes": [cause.to_json() for cause in results.causes],
        "retries": sum(record.retries for record in results.records),
        "rolled_out_again": sum(record.repeated for record in results.records),
        "truncated": len(results.truncated),
        "rows_of_equal_answers": equal_answers(results).equal,
        "usage": results.usage,
        "cost_usd": results.cost_usd,
        "cost_unknown": n_cost_unknown(results),
        "throttling": _throttling(results.throttling),
        **present(replicas=replicas_json(replica_totals(results.all_records))),
        "metrics": results.models[0].metrics(results.pass_rule),
        **present(judges=results.judges),
    }


def _throttling(throttling: Throttling) -> dict[str, Any]:
    return {
        "pauses": throttling.pauses,
        "paused_s": round(throttling.paused_s, 3),
        "least_in_flight": throttling.least_in_flight,
        "held_s": {name: round(held_s, 3) for name, held_s in throttling.held_s.items()},
    }


def _model_summary(results: Results, tag: ModelTag, model: ModelResults) -> dict[str, Any]:
    ended = _ended(model.records)
    return {
        "model": model.model,
        "model_tag": tag,
        "total_runs": len(ended),
        "total_tokens": tokens_of(model.records),
        "total_duration_ms": round(math.fsum(record.duration_ms for record in model.records), 3),
        "eval_fns": {name: _statistics(summary) for name, summary in model.by_function.items()},
        "pass_rate": model.overall.pass_rate,
        "pass_rate_interval": model.overall.pass_rate_interval,
        "measured": sum(map(results.pass_rule.measured, ended)),
        "cost_usd": results.cost_of(model.records),
        "price": model.price,
        "metrics": model.metrics(results.pass_rule),
    }


def _rows(results: Results) -> Iterator[PublishedRow]:
    for row, records in by_row(_ended(results.all_records)).items():
        ordered = sorted(records, key=lambda record: (record.run.is_baseline, record.run.index))
        yield PublishedRow(
            row_index=row, row_digest=results.row_digests[row], runs=[_run(results, record) for record in ordered]
        )


def _run(results: Results, record: RunRecord) -> PublishedRun:
    boundary = results.pass_rule.boundary(record)
    status: Any = record.status  # not "pending"
    return PublishedRun(
        run_index=record.run.index,
        model_tag=_tag(results, record.run),
        success=record.status != "failed",
        scores=record.scores if record.status == "finished" else {},
        tokens=record.tokens,
        status=status,
        passed=results.pass_rule.passed(record),
        boundary=boundary,
        error=error_of(record) if record.scorer_errors else record.error or None,
        infra=boundary in INFRASTRUCTURE,
        scoring_ms=round(record.scoring_ms, 3),
        cost_usd=results.costs_usd.get(record.run),
        bound=record.bound or None,
        imported_from=None if record.imported is None else record.imported.folder,
        answer=record.answer,
        errors={
            name: {"message": failed.message, "boundary": failed.boundary}
            for name, failed in record.scorer_errors.items()
        },
        **record.notes.to_json(),
        **_rollout(results, record),
    )


def _rollout(results: Results, record: RunRecord) -> dict[str, Any]:
    """Return what runs that ended and runs without scores have in common: their rollouts, and requests to judges."""
    uses = record.judge_uses
    return {
        **same_facts(record),
        "replicas": replicas_json(record.replicas),
        "judges": tuple(map(judge_fields, uses)),
        "judges_cost_usd": cost_of_judges(uses, results.judge_price) if uses else UNSET,
    }


def _pending(results: Results, record: RunRecord) -> PendingRun:
    """Return a run that never ended. What its rollout used is in the summary, so it is told if there was one."""
    run = record.run
    return PendingRun(
        row_index=run.row,
        row_digest=results.row_digests.get(run.row),
        run_index=run.index,
        model_tag=_tag(results, run),
        reason=record.skip_reason,
        started=record.started,
        rollout=UnscoredRollout(**_rollout(results, record)) if record.rolled else None,
    )


def _tag(results: Results, run: RunId) -> ModelTag | None:
    """Return the run's model tag if two models ran."""
    return run.model if results.baseline is not None else None


def _ended(records: Iterable[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.status != "pending"]


def _statistics(summary: stats.Summary) -> dict[str, Any]:
    return {
        **{name: getattr(summary, name) for name in ("mean", "std", "min", "max", "median", "pass_rate")},
        "standard_error": summary.se,
        "mean_interval": summary.mean_interval,
        "pass_rate_interval": summary.pass_rate_interval,
        **{f"p{p}": summary.percentiles.get(p) for p in stats.PERCENTILES},
        "variance_within_rows": summary.within,
        "variance_between_rows": summary.between,
        "mixed_rows": summary.n_mixed,
        "measured": summary.n_measured,
        **{f"pass_at_{k}": value for k, value in summary.pass_at.items()},
        **{f"pass_hat_{k}": value for k, value in summary.pass_hat.items() if k > 1},
    }


# -- files of results --------------------------------------------------------------------------------------


def why_not_writable(path: Path) -> str | None:
    """Return why a file cannot be written at `path`, None if it can."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (Path.stat does the same)
        if not stat.S_ISREG(mode):
            return "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file"
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # a loop of links, a name too long, a folder that may not be entered
        return error.strerror
    nearest = next(folder for folder in Path(os.path.realpath(path)).parents if folder.exists())
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written to"


def kept_path(path: Path) -> Path:
    """Return the first unused path for earlier results: results.json is kept as results.1.json."""
    numbered = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in itertools.count(1))
    return next(free for free in numbered if not free.exists())


def keep_earlier(path: Path) -> None:
    """Copy the results at `path`, if there are any, before new ones replace them."""
    if path.exists():
        shutil.copy2(path, kept_path(path))


def write(path: Path, text: Iterable[str], *, is_private: bool = False) -> Path:
    """Write atomically and return the path: a reader sees the old file or the whole new one. Follows a link.

    Only its owner may read a file that `is_private`.
    """
    with (
        replacing(path) as scratch,
        open(scratch, "w", encoding="utf-8", opener=private.opener if is_private else None) as pieces,
    ):
        pieces.writelines(text)
    return path


@contextmanager
def replacing(path: Path, *, follows_link: bool = True) -> Iterator[Path]:
    """Do the same as `private.replacing`, in a folder that is made if there is none."""
    file = path.resolve() if follows_link else path
    file.parent.mkdir(parents=True, exist_ok=True)
    with private.replacing(file) as scratch:
        yield scratch


def append(path: Path, text: str) -> None:
    """Append to a file of another program. A pipe that nobody reads raises `OSError` and does not block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8", opener=_open_without_waiting) as file:
        file.write(text)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def typed_path(folder: Path, output: str, name: str, n_evals: int) -> Path | None:
    """Return where an option lets the results of one of `n_evals` go, None if all would go to the same file."""
    path = folder / output.replace("{name}", name)
    if path.is_dir() or output.endswith(("/", os.sep)):
        return path / f"{name}.json"
    return None if n_evals > 1 and "{name}" not in output else path


def partial_path(path: Path) -> Path:
    """Return the path of partial results, which never replace whole ones: x.partial.json for x.json."""
    return path.with_name(f"{path.stem}.partial{path.suffix}")
