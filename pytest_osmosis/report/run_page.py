"""The page on one stored eval run: what became of it, its summary, and the runs that did not pass."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.lifecycle import Lifecycle
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.answers import ScoredAnswer
from pytest_osmosis.report.code_version import code_version
from pytest_osmosis.report.failure_text import answer_line, lost_text
from pytest_osmosis.report.show_command import show_command
from pytest_osmosis.report.style import STATUSES, StyledText, bad, bold, dim, good, joined, warning
from pytest_osmosis.report.summary import summary_lines
from pytest_osmosis.report.verdict import verdict_lines
from pytest_osmosis.results.results import Results
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.numbers import count, moment, plural
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import fitted, one_line
from pytest_osmosis.text.safe import width as width_of
from pytest_osmosis.verdicts.pass_rule import UNMEASURED, PassRule, kind_of, reason_of

Listing = Literal["first", "failed", "all"]
"""The runs that a page lists: the first ones that did not pass, all of them, or every run."""
MOST_LISTED = 20
LEAST_COLUMNS = 40
"""The room for a run's outcome on a narrow terminal."""


def page_lines(stored: StoredResults, listing: Listing, columns: int | None) -> Iterator[str]:
    """Yield the lines of the page. None `columns` means that no line is too wide."""
    yield joined(bold(stored.run.directory.name), ": ", _state(stored))
    yield from (dim(f"  {line}") for line in circumstances(stored))
    yield from (warning(f"  {line}") for line in remarks(stored))
    results = stored.results
    yield ""
    yield from verdict_lines(results)
    yield ""
    yield from summary_lines(results, columns=columns)
    yield from _runs(stored, listing, columns)


# -- what became of it -------------------------------------------------------------------------------------


def _state(stored: StoredResults) -> StyledText:
    results, n_planned = stored.results, stored.run.manifest.selected.n_rollouts
    status = StyledText((stored.status, STATUSES.get(stored.status)))
    if stored.is_from_journal:
        ended = f"{count(len(stored.records))} of {plural(n_planned, 'planned run')} ended"
        more = "in flight" if stored.status == "running" else "had begun"
        begun = f", {count(len(stored.begun))} more {more}" if stored.begun else ""
        return joined(status, f", {ended}{begun}")
    early = " early" if results.decided and stored.status == "finished" else ""
    return joined(status, early, ", a part of the plan" if results.partial else "")


def circumstances(stored: StoredResults) -> Iterator[str]:
    """Yield lines on config, model, rollout, rows and time of an eval run, and on the process that writes it."""
    manifest, life = stored.run.manifest, stored.lifecycle
    extra: Mapping[str, Any] = manifest.subject.extra
    config = stored.document["config"]
    model = manifest.subject.model + (f", baseline {manifest.baseline.model}" if manifest.baseline is not None else "")
    n = f", n = {manifest.subject.n}" if manifest.subject.n > 1 else ""
    rollout = "" if manifest.rollout is None else f", rollout {one_line(manifest.rollout)}"
    rows = f"{extra['dataset']} (rows: {extra['selection']}){n}"
    yield f"{config['path']}, model {model}{rollout}, {rows}"
    if overridden := config["overridden"]:
        yield f"overridden: {listed(overridden, 8)}"
    provenance = stored.document["provenance"]
    commit = provenance.get("git_commit")
    version = "" if commit is None else f", {code_version(commit, provenance.get('git_dirty'))}"
    ended = "" if life.ended_at is None else f", ended {moment(life.ended_at)}"
    yield f"started {moment(manifest.started_at)}{ended}{version}"
    if life.holder is not None:
        yield f"{'being scored again' if life.has_ended else 'written'} by {life.holder}"


def remarks(stored: StoredResults) -> Iterator[str]:
    """Yield lines that warn: what the numbers are not, and how to go on."""
    manifest, directory, results = stored.run.manifest, stored.run.directory, stored.results
    life = stored.lifecycle
    if stored.is_from_journal and life.has_ended:
        why = life.reason or "it wrote no results"
        numbers = ": these numbers are made from its journal, for the runs that ended" if stored.records else ""
        yield why + numbers
        if stored.records:
            yield f"pytest --osmosis-from={shlex.quote(directory.name)} makes results of them, and asks no model"
        if (n_lost := stored.replayed.ledger.most_lost) and not manifest.replays:
            yield lost_text(n_lost)
    elif life.reason is not None and results.stopped is None:
        yield f"it {'failed' if life.status == 'failed' else 'was stopped'} before: {life.reason}"
    if (command := continuation(stored.run, life)) is not None:
        yield f"to go on, without running again what is stored: {command}"
    if stored.status == "pending":
        yield "the code is not loaded yet"
    if stored.status == "running":
        yield "the numbers are those of the runs that ended so far"
    if life.is_being_rescored:
        yield "its rollouts are being scored again now; these are the results before that"
    if manifest.is_of_tests:
        yield "made for tests over rollouts, which decide by themselves whether they pass"
    before = None if results.rescored is None else results.rescored.comparison
    if before is not None:
        yield f"its rollouts were scored again; the results before that are in {before.name}"
    if directory.partial_results.exists():
        yield f"a later rescoring was partial or stopped; its results are in {directory.partial_results.name}"
    if _is_filled(directory.host_log):
        yield f"user code also wrote to {shown(directory.host_log)}"


def continuation(run: StoredEvalRun, life: Lifecycle) -> str | None:
    """Return the command that performs the runs which are left, None if none are, or more would be of no use."""
    if life.status not in ("failed", "stopped") or run.manifest.is_of_tests:
        return None
    name = f"--osmosis-run={run.directory.name}"
    if (path := run.own_config) is None:
        return f"the command that began it, with {shlex.quote(name)}"
    if run.manifest.entry is not None:
        return shlex.join(["pytest", f"{path}::{run.manifest.entry}", name])
    return shlex.join(["pytest", f"--osmosis-config={path}", name])


def _is_filled(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


# -- its runs ----------------------------------------------------------------------------------------------


def _runs(stored: StoredResults, listing: Listing, columns: int | None) -> Iterator[str]:
    results = stored.results
    judged = [record for record in results.records if record.status not in ("pending", "skipped")]
    lost = [record for record in judged if kind_of(record, results.pass_rule) != "passed"]
    if listing == "all" and results.all_records:
        yield from ("", bold(f"all {plural(len(results.all_records), 'run')}:"))
        yield from _listed(stored, results.all_records, columns)
    elif lost:
        yield ""
        listed_runs = lost if listing == "failed" else lost[:MOST_LISTED]
        first = f" (the first {MOST_LISTED})" if len(listed_runs) < len(lost) else ""
        yield bold(
            f"{count(len(lost))} of {plural(len(judged), 'run')} did not pass{_unmeasured(results, lost)}{first}:"
        )
        yield from _listed(stored, listed_runs, columns)
    elif listing != "first":
        yield from ("", f"no run failed: {plural(len(judged), 'run')} passed" if judged else "no run ended")
    yield from _commands(stored, lost, listing)


def _unmeasured(results: Results, lost: Sequence[RunRecord]) -> str:
    """Return how many of the runs that did not pass say nothing about the model."""
    n = sum(not results.pass_rule.measured(record) for record in lost)
    if not n:
        return ""
    return f", {'all' if n == len(lost) else count(n)} of them not measured"


def _commands(stored: StoredResults, lost: Sequence[RunRecord], listing: Listing) -> Iterator[str]:
    """Yield the commands with which to look further, or to stop what is running."""
    results, command, commands = stored.results, show_command(stored.run.directory.path), []
    if listing == "first" and len(lost) > MOST_LISTED:
        commands.append((f"all {count(len(lost))}:", f"{command} --failed"))
    example = next(iter([*lost, *(record for record in results.records if record.rolled)]), None)
    if example is not None:
        commands.append(("one conversation:", f"{command} {example.run}"))
        if results.description.n > 1:
            commands.append(("all runs of a row:", f"{command} --row {example.run.row}"))
    if listing != "all" and results.all_records:
        commands.append(("every run:", f"{command} --all"))
    if not stored.lifecycle.has_ended:
        commands.append(("to stop it:", f"pytest-osmosis runs stop {shlex.quote(stored.run.directory.name)}"))
    if commands:
        width = max(len(title) for title, _ in commands)
        yield ""
        yield from (dim(f"{title:<{width}}  {text}") for title, text in commands)


def _listed(stored: StoredResults, records: Sequence[RunRecord], columns: int | None) -> Iterator[str]:
    """Yield a line on each run, or two if one would be wider than the terminal."""
    rule = stored.results.pass_rule
    width = max((len(str(record.run)) for record in records), default=0)
    for record in records:
        style, outcome = _outcome(rule, record)
        answer = ""
        if record.status == "finished":
            answer = answer_line(record, rule, ScoredAnswer.of(*_answered(stored, record)))
        begin = joined("  ", style(f"{record.run}"), " " * (width - len(str(record.run)) + 2))
        line = f"{outcome}: {answer}" if answer else outcome
        if columns is None or len(begin) + width_of(line) <= columns:
            yield joined(begin, line)
        else:
            room = max(columns - len(begin), LEAST_COLUMNS)
            yield joined(begin, fitted(outcome, room))
            if answer:
                yield " " * len(begin) + fitted(answer, room)


def _outcome(rule: PassRule, record: RunRecord) -> tuple[Callable[[str], StyledText], str]:
    """Return the style of a run's name, and its outcome in one line."""
    kind = kind_of(record, rule)
    reason = one_line(reason_of(record, rule))
    if kind == "skipped":
        return dim, f"not run: {reason}" if record.status == "pending" else reason
    if kind == "error":
        return (warning if rule.boundary(record) in UNMEASURED else bad), reason
    if kind == "failed":
        return bad, reason
    scores = [f"{record.scores[name]:g}" for name in rule.deciding if name in record.scores]
    return good, f"passed, {'score' if len(scores) == 1 else 'scores'} {', '.join(scores)}"


def _answered(stored: StoredResults, record: RunRecord) -> tuple[Sequence[object], int, object]:
    rollout, score = stored.rollout(record), stored.score(record)
    return rollout.get("messages", ()), rollout.get("n_prompt", 0), score.get("ground_truth")
