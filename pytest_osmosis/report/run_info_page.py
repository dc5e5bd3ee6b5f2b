"""The page and the JSON of `pytest-osmosis runs info`: an eval run in a few lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from pytest_osmosis.report.run_page import STATUSES, circumstances, continuation
from pytest_osmosis.report.show_command import show_command
from pytest_osmosis.report.statistics import interval_text
from pytest_osmosis.report.style import StyledText, bold, dim, joined, warning
from pytest_osmosis.report.verdict import STATES
from pytest_osmosis.results.results import Results
from pytest_osmosis.results.run_info import RunInfo
from pytest_osmosis.text.numbers import count, moment, money, plural, score, seconds
from pytest_osmosis.text.safe import one_line

SCHEMA_VERSION = 1


def info_lines(info: RunInfo) -> Iterator[str]:
    """Yield the lines of the page."""
    stored, life = info.stored, info.stored.lifecycle
    replayed = [", replayed: no model was asked"] if stored.run.manifest.replays else []
    yield joined(bold(stored.run.directory.name), ": ", STATUSES[life.status](life.status), *_early(info), *replayed)
    if life.reason is not None:
        yield warning(f"  {one_line(life.reason)}")
    yield from (dim(f"  {line}") for line in circumstances(stored))
    if (rollout := stored.run.manifest.rollout) is not None:
        yield dim(f"  rollout {one_line(rollout)}")
    if life.ended_at is not None:
        yield dim(f"  ended {moment(life.ended_at)}")
    if life.holder is not None:
        does = "its rollouts are being scored again by" if life.has_ended else "written by"
        yield dim(f"  {does} {life.holder}")
    yield ""
    rows = [("runs", _progress(info)), ("time", _time(info)), *_outcome(stored.results)]
    width = max(len(title) for title, _ in rows)
    yield from (joined(f"{title:<{width}}  ", text) for title, text in rows if text)
    commands = [(title, command) for title, command in _commands(info) if command]
    width = max(len(title) for title, _ in commands)
    yield ""
    yield from (dim(f"{title:<{width}}  {command}") for title, command in commands)


def _early(info: RunInfo) -> list[str]:
    results = info.stored.results
    if results is None or info.stored.is_from_journal:
        return []
    early = [" early, its gates were decided"] if results.decided else []
    return [*early, *([", a part of the plan"] if results.partial else [])]


def _progress(info: RunInfo) -> str:
    counts = info.counts
    share = f" ({counts.done / counts.planned:.0%})" if counts.planned and counts.done < counts.planned else ""
    parts = [f"{count(counts.done)} of {plural(counts.planned, 'run')} done{share}"]
    kinds = [
        (counts.passed, "passed"),
        (counts.failed, "did not pass"),
        (counts.unmeasured, "not measured"),
        (counts.removed, "removed by the grader"),
    ]
    named = [f"{count(n)} {kind}" for n, kind in kinds if n]
    has_ended = info.stored.lifecycle.has_ended
    begun = "had begun" if has_ended else "in flight"
    rest = [(counts.unscored, "not scored yet"), (counts.in_flight, begun), (counts.pending, "pending")]
    parts[0] += f": {', '.join(named)}" if named else ""
    left = [f"{count(n)} {kind}" for n, kind in rest if n]
    parts += [", ".join(left)] if left else []
    if has_ended and (n_lost := info.stored.replayed.ledger.most_lost):
        billed = "" if info.stored.run.manifest.replays else ", possibly billed"
        parts.append(f"up to {plural(n_lost, 'rollout')} lost in flight{billed}")
    return "; ".join(parts)


def _time(info: RunInfo) -> str:
    if info.elapsed_s is None:
        return ""
    left = "" if info.remaining_s is None else f", about {seconds(info.remaining_s)} left"
    return f"{seconds(info.elapsed_s)}{'' if info.stored.lifecycle.has_ended else ' so far'}{left}"


def _outcome(results: Results | None) -> Iterator[tuple[str, str]]:
    """Yield scores, pass rate, gates, tokens and cost, each with a title."""
    if results is None:
        return
    overall = results.overall
    if overall.n_measured:
        interval = overall.pass_rate_interval
        between = "" if interval is None else f", {interval.level:.0%} interval {interval_text(interval)}"
        yield "pass rate", f"{score(overall.pass_rate)} of {plural(overall.n_measured, 'measured run')}{between}"
        for name in results.pass_rule.deciding:
            if name in results.by_function and results.by_function[name].n_measured:
                yield "score", f"{score(results.by_function[name].mean)}, the mean of {name}"
    for verdict in results.verdicts:
        said = joined("", StyledText((verdict.state, STATES[verdict.state])))
        yield "gate", joined(f"{verdict.title}: ", said, f": {one_line(verdict.text)}" if verdict.text else "")
    yield "tokens", count(results.total_tokens)
    yield "cost", _cost(results)


def _cost(results: Results) -> str:
    if results.cost_usd is None:
        return "unknown"
    return f">= {money(results.cost_usd)}" if results.n_cost_unknown else money(results.cost_usd)


def _commands(info: RunInfo) -> Iterator[tuple[str, str]]:
    stored = info.stored
    name = shlex.quote(stored.run.directory.name)
    yield "all of it:", show_command(stored.run.directory.path)
    if stored.lifecycle.has_ended:
        yield "to go on:", continuation(stored.run, stored.lifecycle) or ""
    else:
        yield "to watch it:", f"pytest-osmosis runs info {name} --watch"
        yield "to stop it:", f"pytest-osmosis runs stop {name}"


# -- JSON --------------------------------------------------------------------------------------------------


def info_json(info: RunInfo) -> dict[str, Any]:
    """Return the same as JSON. Members that are not known are null."""
    stored, life, counts, results = info.stored, info.stored.lifecycle, info.counts, info.stored.results
    manifest, holder = stored.run.manifest, life.holder
    extra = manifest.subject.extra
    return {
        "schema_version": SCHEMA_VERSION,
        "name": stored.run.directory.name,
        "path": str(stored.run.directory.path),
        "status": life.status,
        "reason": life.reason,
        "stopped_by": life.stopped_by,
        "process": None
        if holder is None
        else {"pid": holder.pid, "machine": holder.machine, "since": holder.since, "purpose": holder.purpose},
        "eval": manifest.eval,
        "config": extra["path"],
        "model": manifest.subject.model,
        "baseline_model": None if manifest.baseline is None else manifest.baseline.model,
        "dataset": extra["dataset"],
        "rows": extra["selection"],
        "n": manifest.subject.n,
        "rollout": manifest.rollout,
        "replayed": manifest.replays,
        "started_at": manifest.started_at,
        "ended_at": life.ended_at,
        "elapsed_s": info.elapsed_s,
        "remaining_s": info.remaining_s,
        "partial": None if results is None or stored.is_from_journal else results.partial,
        "runs": {
            "planned": counts.planned,
            "done": counts.done,
            "passed": counts.passed,
            "failed": counts.failed,
            "unmeasured": counts.unmeasured,
            "removed": counts.removed,
            "unscored": counts.unscored,
            "in_flight": counts.in_flight,
            "pending": counts.pending,
        },
        "lost_in_flight": stored.replayed.ledger.most_lost if life.has_ended else None,
        **_outcome_json(results),
        "commands": {
            "show": show_command(stored.run.directory.path),
            "continue": continuation(stored.run, life),
            "stop": None if life.has_ended else f"pytest-osmosis runs stop {shlex.quote(stored.run.directory.name)}",
        },
    }


def _outcome_json(results: Results | None) -> dict[str, Any]:
    if results is None:
        names = ("pass_rate", "pass_rate_interval", "scores", "tokens", "cost_usd", "cost_unknown")
        return {**dict.fromkeys(names), "gates": []}
    overall, interval = results.overall, results.overall.pass_rate_interval
    return {
        "pass_rate": overall.pass_rate if overall.n_measured else None,
        "pass_rate_interval": None
        if interval is None
        else {"low": interval.low, "high": interval.high, "level": interval.level, "method": interval.method},
        "scores": {name: summary.mean for name, summary in results.by_function.items() if summary.n_measured},
        "tokens": results.total_tokens,
        "cost_usd": results.cost_usd,
        "cost_unknown": results.n_cost_unknown,
        "gates": [{"gate": each.title, "state": each.state, "text": each.text} for each in results.verdicts],
    }
