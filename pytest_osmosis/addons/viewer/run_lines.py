"""Stored eval runs, their rows and runs, as `pytest-osmosis show` prints them: in lines, or as JSON for programs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from pytest_osmosis.addons.viewer.message_layout import INDENT, Shortener, message_lines, text_lines
from pytest_osmosis.addons.viewer.stored_results import RunHistory, StoredResults
from pytest_osmosis.formats.events import plain
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.lifecycle import Lifecycle
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.failure_text import ScoredAnswer, answer_line, lost_text, note_lines, score_lines
from pytest_osmosis.report.statistics import show_command
from pytest_osmosis.report.style import STATUSES, StyledText, bad, bold, dim, good, joined, warning
from pytest_osmosis.report.summary import summary_lines, verdict_lines
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, moment, money, plural, seconds
from pytest_osmosis.text.safe import fitted, one_line
from pytest_osmosis.verdicts.pass_rule import ANSWER_FAULTS, UNMEASURED, PassRule, kind_of, reason_of

SHORT = 12
"""The digits of a commit that are shown. They tell the commits of any repository apart."""
Listing = Literal["first", "failed", "all"]
"""The runs that a page lists: the first ones that did not pass, all of them, or every run."""
MOST_LISTED = 20
LEAST_COLUMNS = 40
"""The room for a run's outcome on a narrow terminal."""
SCHEMA_VERSION = 1


def code_version(commit: str | None, dirty: bool | None) -> str:
    """Return the git commit of the code, and the state of its files.

    >>> code_version("1f3a" * 10, False)
    'git commit 1f3a1f3a1f3a'
    >>> code_version("1f3a" * 10, True)
    'git commit 1f3a1f3a1f3a, with uncommitted changes'
    >>> code_version("1f3a" * 10, None), code_version(None, None)
    ('git commit 1f3a1f3a1f3a, uncommitted changes unknown', 'git commit unknown')
    """
    if commit is None:
        return "git commit unknown"
    state = {None: ", uncommitted changes unknown", True: ", with uncommitted changes", False: ""}[dirty]
    return f"git commit {commit[:SHORT]}{state}"


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
    extra, told = manifest.subject.extra, stored.results.description.extra
    model = manifest.subject.model + (f", baseline {manifest.baseline.model}" if manifest.baseline is not None else "")
    n = f", n = {manifest.subject.n}" if manifest.subject.n > 1 else ""
    rollout = "" if manifest.rollout is None else f", rollout {one_line(manifest.rollout)}"
    rows = f"{extra['dataset']} (rows: {extra['selection']}){n}"
    yield f"{told['path']}, model {model}{rollout}, {rows}"
    if overridden := told["overridden"]:
        yield f"overridden: {listed(overridden, 8)}"
    provenance = stored.results.provenance
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
    if stored.is_from_journal and life.has_ended and not stored.run.is_of_files:
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
        yield f"to resume, without running again what is stored: {command}"
    if stored.status == "pending":
        yield "the code is not loaded yet"
    if stored.status == "running":
        yield "the numbers are those of the runs that ended so far"
    if life.is_being_rescored:
        yield "its rollouts are being scored again now; these are the results before that"
    if manifest.is_of_tests:
        yield "made for tests over rollouts, which decide by themselves whether they pass"
    if _is_filled(directory.host_log):
        yield f"user code also wrote to {shown(directory.host_log)}"


def continuation(run: StoredEvalRun, life: Lifecycle) -> str | None:
    """Return the command that performs the runs which are left, None if none are, or more would be of no use."""
    if life.status not in ("failed", "stopped") or run.manifest.is_of_tests:
        return None
    name = f"--osmosis-run={run.directory.name}"
    if (path := run.own_config) is None:
        return f"the command that began it, with {shlex.quote(name)}"
    return shlex.join(["pytest", config_argument(path, run.manifest.entry), name])


def config_argument(path: str, entry: str | None) -> str:
    """Return the argument of pytest that names an eval. A config that is no .toml needs the option."""
    named = path if path.endswith(".toml") else f"--osmosis-config={path}"
    return named if entry is None else f"{named}::{entry}"


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
    results, command, commands = stored.results, show_command(stored.run.place), []
    if listing == "first" and len(lost) > MOST_LISTED:
        commands.append((f"all {count(len(lost))}:", f"{command} --failed"))
    example = next(iter([*lost, *(record for record in results.records if record.rolled)]), None)
    if example is not None:
        commands.append(("one conversation:", f"{command} {example.run}"))
        if results.description.n > 1:
            commands.append(("all runs of a row:", f"{command} row{example.run.row}"))
    if listing != "all" and results.all_records:
        commands.append(("every run:", f"{command} --all"))
    if not stored.lifecycle.has_ended:
        commands.append(("to stop it:", f"pytest-osmosis runs stop {shlex.quote(stored.run.directory.name)}"))
    if commands:
        width = max(len(title) for title, _ in commands)
        yield ""
        yield from (dim(f"{title:<{width}}  {text}") for title, text in commands)


def _listed(stored: StoredResults, records: Sequence[RunRecord], columns: int | None) -> Iterator[str]:
    """Yield a line on each run, of which a long one loses its end."""
    rule = stored.results.pass_rule
    width = max((len(str(record.run)) for record in records), default=0)
    for record in records:
        style, outcome = _outcome(rule, record)
        answer = ""
        if record.status == "finished":
            answer = answer_line(record, rule, ScoredAnswer.of(stored.history(record).transcript))
        begin = joined("  ", style(f"{record.run}"), " " * (width - len(str(record.run)) + 2))
        line = f"{outcome}: {answer}" if answer else outcome
        yield joined(begin, line if columns is None else fitted(line, max(columns - len(begin), LEAST_COLUMNS)))


def _outcome(rule: PassRule, record: RunRecord) -> tuple[Callable[[str], StyledText], str]:
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


class RunContext(Struct, frozen=True):
    """All that is known about a run apart from its events.

    `eval_run` is the name of its eval run. `costs_usd` holds the known costs. `place` is the row's line in the dataset,
    `rerun` the command that repeats the run; both are "" if they are not known.
    """

    eval_run: str
    pass_rule: PassRule
    costs_usd: Mapping[RunId, float]
    place: str
    rerun: str


def run_lines(history: RunHistory, context: RunContext, cut: Shortener) -> Iterator[str]:
    """Yield the lines on one run, with its whole conversation."""
    yield joined(bold(f"{context.eval_run} {history.record.run}"), ": ", became(history, context))
    yield from _facts(history, context, cut)
    yield from _answer_lines(history, cut)
    yield from _origin_lines(context)
    yield from message_lines(history.transcript.messages, cut)
    yield from _output_lines(history, cut)
    yield from shortened_lines(cut)


def _origin_lines(context: RunContext) -> Iterator[str]:
    if context.place:
        yield dim(f"  dataset row: {context.place}")
    if context.rerun:
        yield dim(f"  run it again: {context.rerun}")


def row_lines(row: int, histories: Sequence[RunHistory], context: RunContext, cut: Shortener) -> Iterator[str]:
    """Yield the lines on all runs of a row: the prompt once, if all have the same, and what each run made of it."""
    passed = sum(context.pass_rule.passed(each.record) for each in histories)
    yield joined(bold(f"{context.eval_run} row{row}"), f": {count(passed)} of {plural(len(histories), 'run')} passed")
    yield from _origin_lines(context)
    transcripts = [history.transcript for history in histories]
    prompts = [list(each.messages[: each.n_prompt]) for each in transcripts if each.messages]
    shared = len(prompts[0]) if prompts and all(prompt == prompts[0] for prompt in prompts) else 0
    if shared:
        yield from message_lines(prompts[0], cut)
    for history in histories:
        yield ""
        yield joined(bold(str(history.record.run)), ": ", became(history, context))
        yield from _facts(history, context, cut)
        yield from _answer_lines(history, cut)
        yield from message_lines(history.transcript.messages[shared:], cut)
        yield from _output_lines(history, cut)
    yield from shortened_lines(cut)


def became(history: RunHistory, context: RunContext) -> StyledText:
    """Return in words what became of a run."""
    record, rule = history.record, context.pass_rule
    if record.status == "pending":
        if record.skip_reason:
            return warning(f"not finished ({record.skip_reason})")
        return warning("begun, but not finished" if record.started else "never ran")
    if record.status == "skipped":
        return dim("taken out by its grader")
    if record.status == "failed":
        paint = warning if record.boundary in UNMEASURED else bad
        return paint(f"not scored, boundary {record.boundary}")
    if rule.broken(record):
        return warning("not scored, boundary reward")
    return good("passed") if rule.passed(record) else bad("did not pass")


def shortened_lines(cut: Shortener) -> list[str]:
    """Return a remark on the texts that were shortened."""
    if not cut.n_cut:
        return []
    are = "is" if cut.n_cut == 1 else "are"
    return ["", dim(f"{plural(cut.n_cut, 'long text')} {are} shortened; --full shows everything")]


def _facts(history: RunHistory, context: RunContext, cut: Shortener) -> Iterator[str]:
    record, rule = history.record, context.pass_rule
    yield dim(f"  {_circumstances(record, context.costs_usd.get(record.run))}")
    for name, line in score_lines(record, history.scorers, rule):
        decides = name in rule.deciding and name in record.scores
        yield (good if rule.met(record, name) else bad)(f"  {line}") if decides else f"  {line}"
        if name in record.scorer_errors:
            yield from text_lines(record.scorer_errors[name].details, cut, "  " + INDENT)
    if record.error is not None:
        yield from (f"  {line}".rstrip() for line in f"error: {cut(record.error)}".split("\n"))
        yield from text_lines(history.transcript.details, cut)
    if record.bound is not None and record.bound not in (record.error or ""):
        yield f"  met {record.bound}: the model was not asked again"
    if record.status == "finished" and record.answer_fault is not None:
        yield f"  {ANSWER_FAULTS[record.answer_fault]}"
    yield from (f"  {line}" for line in note_lines(record.notes, history.scorers, cut))


def _answer_lines(history: RunHistory, cut: Shortener) -> Iterator[str]:
    """Yield the answer that was scored, unless the conversation ends with it, and what was expected."""
    if history.record.status == "finished":
        yield from (f"  {line}" for line in ScoredAnswer.of(history.transcript).lines(cut))


def _circumstances(record: RunRecord, cost: float | None) -> str:
    usage = record.usage
    parts = [
        *([f"model {record.model}"] if record.model else []),
        f"rollout {seconds(record.duration_ms / 1000)}",
        f"scoring {seconds(record.scoring_ms / 1000)}",
        "tokens unknown"
        if usage is None
        else f"{count(usage.get('input_tokens', 0))} + {count(usage.get('output_tokens', 0))} tokens",
        *([money(cost)] if cost is not None else []),
        *([f"finish reason {record.finish_reason}"] if record.finish_reason else []),
        *([plural(record.retries, "repeated request")] if record.retries else []),
        *([f"attempt {record.attempt}"] if record.attempt > 1 else []),
    ]
    return ", ".join(parts)


def _output_lines(history: RunHistory, cut: Shortener) -> Iterator[str]:
    for kind, text in (pair for output in history.outputs for pair in output.items()):
        yield from ("", bold(f"{kind}:"), *text_lines(text, cut))


def page_json(stored: StoredResults, *, only_failed: bool) -> dict[str, Any]:
    """Return the eval run with all its runs, or only those that did not pass."""
    rule = stored.results.pass_rule
    records = [each for each in stored.records if not only_failed or kind_of(each, rule) in ("failed", "error")]
    costs = stored.results.costs_usd
    return _page(stored, [_run_of(stored.history(record), rule, costs) for record in records])


def runs_json(stored: StoredResults, histories: Iterable[RunHistory]) -> dict[str, Any]:
    """Return the eval run with these runs, and all that the journal holds of them."""
    rule = stored.results.pass_rule
    return _page(
        stored, [{**_run_of(history, rule, stored.results.costs_usd), **_whole(history)} for history in histories]
    )


def _page(stored: StoredResults, runs: list[dict[str, Any]]) -> dict[str, Any]:
    manifest, directory = stored.run.manifest, stored.run.directory
    extra = manifest.subject.extra
    return {
        "schema_version": SCHEMA_VERSION,
        "eval_run": directory.name,
        "path": str(stored.run.place),
        "status": stored.status,
        "reason": stored.lifecycle.reason,
        "rescoring": stored.lifecycle.is_being_rescored,
        "eval": manifest.eval,
        "config": extra["path"],
        "model": manifest.subject.model,
        "dataset": extra["dataset"],
        "rollout": manifest.rollout,
        "started_at": manifest.started_at,
        "ended_at": stored.lifecycle.ended_at,
        "planned_runs": manifest.selected.n_rollouts,
        "in_flight": len(stored.begun),
        "results": stored.document,
        "runs": runs,
    }


def _run_of(history: RunHistory, rule: PassRule, costs: Mapping[RunId, float]) -> dict[str, Any]:
    record = history.record
    outcome = record.status if record.status == "pending" else kind_of(record, rule)
    answer = ScoredAnswer.of(history.transcript)
    return {
        "run": str(record.run),
        "row_index": record.run.row,
        "run_index": record.run.index,
        "model_tag": str(record.run.model),
        "outcome": outcome,
        "reason": one_line(reason_of(record, rule)),
        "boundary": rule.boundary(record),
        "error": record.error,
        "scores": dict(record.scores),
        "errors": {name: error.message for name, error in record.scorer_errors.items()},
        "answer": answer.text if history.transcript.messages else None,
        "ground_truth": history.transcript.ground_truth,
        **plain(record),
        "usage": None if record.usage is None else dict(record.usage),
        "cost_usd": costs.get(record.run),
        "duration_ms": record.duration_ms,
        "scoring_ms": record.scoring_ms,
        "bound": record.bound,
        "attempt": record.attempt,
        **record.notes.to_json(),
    }


def _whole(history: RunHistory) -> dict[str, Any]:
    record, transcript = history.record, history.transcript
    return {
        "messages": list(transcript.messages),
        "prompt_messages": transcript.n_prompt,
        "details": transcript.details,
        "error_details": {name: error.details for name, error in record.scorer_errors.items()},
        "output": [dict(output) for output in history.outputs if output],
    }
