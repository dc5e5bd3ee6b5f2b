"""One stored run as text: its conversation, its scores with their thresholds, its error and its usage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.event_shapes import SHAPES
from pytest_osmosis.record.find_run import find_run
from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Event, RunRecord, fold, settled
from pytest_osmosis.report.answers import ScoredAnswer
from pytest_osmosis.report.conversation import parts_of
from pytest_osmosis.report.failure_text import score_lines
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.text.numbers import count, money, plural, seconds
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import one_line, shortened
from pytest_osmosis.verdicts.pass_rule import ANSWER_FAULTS, PassRule

_INDENT = "  "
MOST_CHARS = 100_000
"""The most that is shown of one message or output."""


def show_run(folder: Path, name: str, row_run: str) -> list[str]:
    """Return the lines of one run of the eval run that `find_run` finds by `name`.

    Raises `OsmosisError` if no eval run has that name, its results are not valid, or the run has no event.
    """
    wanted = _wanted(row_run)
    run = find_run(folder, name)
    results = read_results(run.results) if run.results.exists() else None
    return list(_described(run.name, _story(run, wanted), results))


def _wanted(row_run: str) -> RunId:
    run = RunId.named(row_run.rpartition("[")[2].removesuffix("]"))
    if run is None:
        raise OsmosisError(f'"{row_run}": must be a run like row3-run1, or a node id that ends in [row3-run1]')
    return run


@dataclass(frozen=True, slots=True)
class _Story:
    """The events of one run. `answer` is None if it was not scored; `outputs` holds what each step printed, by kind."""

    record: RunRecord
    scorers: Sequence[str]
    messages: Sequence[object]
    details: str
    answer: ScoredAnswer | None
    outputs: Sequence[Mapping[str, str]]


def _story(directory: RunDirectory, wanted: RunId) -> _Story:
    events: list[Event] = []
    n_runs, last = 0, RunId(0, 0)
    for event in settled(replay(directory.journal)):
        if event["ev"] == "loaded":
            events = [*(earlier for earlier in events if earlier["ev"] != "score"), event]
        elif event["ev"] == "rescored":
            events.append(event)
        elif event["ev"] in SHAPES and "row" in event:
            run = RunId.of(event)
            if event["ev"] == "rollout":
                n_runs, last = n_runs + 1, max(last, run)
            if run == wanted:
                events.append(event)
    ledger = fold(events)
    record = ledger.records.get(wanted)
    if record is None:
        stored_runs = f"{plural(n_runs, 'rollout')}, the last of {last}" if n_runs else "no rollout"
        raise OsmosisError(f"{wanted}: not in {shown(directory.path)}, which holds {stored_runs}")
    own = [event for event in events if event.get("attempt") == record.attempt]
    rollout: Event = next((event for event in reversed(own) if event["ev"] == "rollout"), {})
    outputs = [event.get("output") or {} for event in own if event["ev"] in ("rollout", "score")]
    messages = rollout.get("messages", ())
    scored = next((event for event in reversed(own) if event["ev"] == "score"), None)
    answer = None
    if scored is not None:
        answer = ScoredAnswer.of(messages, rollout.get("n_prompt", 0), scored.get("ground_truth"))
    return _Story(record, ledger.scorers, messages, rollout.get("details", ""), answer, outputs)


def _described(eval_run: str, story: _Story, results: PublishedResults | None) -> Iterator[str]:
    record = story.record
    pass_rule = None if results is None else replace(results.pass_rule, scorers=tuple(story.scorers))
    cost = None if results is None else results.cost_of(record.run)
    yield f"{eval_run} {record.run}: {_became(record, pass_rule)}"
    yield _INDENT + _circumstances(record, cost)
    yield from (_INDENT + line for line in _scores(story, pass_rule))
    yield from _error(story)
    if record.status == "finished" and record.answer_fault is not None:
        yield f"{_INDENT}{ANSWER_FAULTS[record.answer_fault]}"
    if story.answer is not None:
        yield from (_INDENT + line for line in story.answer.lines(MOST_CHARS))
    for message in story.messages:
        yield ""
        yield from _message(message)
    for kind, text in (pair for output in story.outputs for pair in output.items()):
        yield from ("", f"{kind}:", *_indented(text))


def _became(record: RunRecord, pass_rule: PassRule | None) -> str:
    if record.status == "pending":
        return f"not finished{f' ({record.skip_reason})' if record.skip_reason else ''}"
    if record.status == "skipped":
        return "taken out by its grader"
    if record.status == "failed":
        return f"not scored, boundary {record.boundary}"
    if pass_rule is None:
        return "scored; the eval ended before it wrote results, so the thresholds are not known"
    if pass_rule.broken(record):
        return "not scored, boundary reward"
    return "passed" if pass_rule.passed(record) else "did not pass"


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


def _scores(story: _Story, pass_rule: PassRule | None) -> Iterator[str]:
    for name, line in score_lines(story.record, story.scorers, pass_rule):
        yield line
        if name in story.record.scorer_errors:
            yield from _indented(story.record.scorer_errors[name].details)


def _error(story: _Story) -> Iterator[str]:
    if story.record.error is not None:
        yield f"{_INDENT}error: {shortened(story.record.error, MOST_CHARS)}"
        yield from _indented(story.details)


def _message(message: object) -> Iterator[str]:
    if not isinstance(message, Mapping):
        yield f"not a message: {one_line(json.dumps(message))}"
        return
    answered = f" ({message['tool_call_id']})" if message.get("tool_call_id") else ""
    yield f"{message.get('role')}{answered}:"
    for part in parts_of(message, call_ids=True):
        yield from _indented(part)


def _indented(text: str) -> list[str]:
    """Return the lines of a text, without its middle if it is very long: the journal holds all of it."""
    text = shortened(text, MOST_CHARS)
    return [f"{_INDENT}{_INDENT}{line}".rstrip() for line in text.rstrip("\n").split("\n")] if text else []
