"""One stored run as text: its conversation from the journal, its scores against thresholds, its error, its usage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import StoredEvalRun, find_run
from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Event, RunRecord, fold, settled
from pytest_osmosis.text.numbers import count, money, plural, seconds
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import escaped
from pytest_osmosis.verdicts.pass_rule import PassRule, score_line
from pytest_osmosis.verdicts.previous_run import is_own

_INDENT = "  "


def show_run(folder: Path, name: str, row_run: str) -> list[str]:
    """The lines of one run of the eval run `name`, as `runs.find_run` finds it from `folder`.

    Raises OsmosisError where there is no such eval run, or nothing happened to such a run in it.
    """
    wanted = _wanted(row_run)
    run = find_run(folder, name)
    return list(_described(run, _story(run, wanted)))


def _wanted(row_run: str) -> RunId:
    run = RunId.named(row_run.rpartition("[")[2].removesuffix("]"))
    if run is None:
        raise OsmosisError(f'"{row_run}": must be a run like row3-run1, or a node id that ends in [row3-run1]')
    return run


@dataclass(frozen=True, slots=True)
class _Story:
    """What the journal says of one run. `outputs` are what each step of it printed, by kind."""

    record: RunRecord
    scorers: Sequence[str]
    messages: Sequence[Mapping[str, Any]]
    details: str
    outputs: Sequence[Mapping[str, str]]


def _story(stored: StoredEvalRun, wanted: RunId) -> _Story:
    events: list[Event] = []
    n_runs, last = 0, RunId(0, 0)
    for event in settled(replay(stored.directory.journal)):
        if event["ev"] == "loaded":
            events = [*(earlier for earlier in events if earlier["ev"] != "score"), event]
        elif event["ev"] == "rescored":
            events.append(event)
        elif "row" in event:
            run = RunId.of(event)
            n_runs, last = n_runs + (event["ev"] == "rollout"), max(last, run)
            if run == wanted:
                events.append(event)
    ledger = fold(events)
    record = ledger.records.get(wanted)
    if record is None:
        rolled = f"it holds {plural(n_runs, 'rollout')}, the last run is {last}" if n_runs else "it holds no rollout"
        raise OsmosisError(f"{wanted}: nothing happened to it in {shown(stored.directory.path)}; {rolled}")
    own = [event for event in events if event.get("attempt") == record.attempt]
    rollout: Event = next((event for event in reversed(own) if event["ev"] == "rollout"), {})
    outputs = [event.get("output") or {} for event in own if event["ev"] in ("rollout", "score")]
    return _Story(record, ledger.scorers, rollout.get("messages", ()), rollout.get("details", ""), outputs)


def _described(stored: StoredEvalRun, story: _Story) -> Iterator[str]:
    record = story.record
    judging = _judging(stored, story.scorers)
    yield f"{escaped(stored.directory.name)} {record.run}: {_became(record, judging)}"
    yield _INDENT + _circumstances(record, _cost(stored, record.run))
    yield from (_INDENT + line for line in _scores(story, judging))
    yield from _error(story)
    for message in story.messages:
        yield ""
        yield from _message(message)
    for kind, text in (pair for output in story.outputs for pair in output.items()):
        yield from ("", f"{escaped(kind)}:", *_indented(text))


def _judging(stored: StoredEvalRun, scorers: Sequence[str]) -> PassRule | None:
    """Who decided, None where the eval was killed before it wrote its results."""
    if stored.results is None:
        return None
    try:
        config = stored.results["config"]
        return PassRule(tuple(scorers), config["pass_threshold"], config["thresholds"], config["decide"])
    except (KeyError, TypeError) as error:
        raise OsmosisError(f"{shown(stored.directory.results)}: lacks {error} in config") from error


def _became(record: RunRecord, judging: PassRule | None) -> str:
    if record.status == "pending":
        return f"never came to its end{f' ({escaped(record.skip_reason)})' if record.skip_reason else ''}"
    if record.status == "skipped":
        return "taken out by its grader"
    if record.status == "failed":
        return f"not scored, boundary {record.boundary}"
    if judging is None:
        return "scored; the eval ended before its results were written, so nothing says what passes"
    if judging.broken(record):
        return "not scored, boundary reward"
    return "passed" if judging.passed(record) else "did not pass"


def _cost(stored: StoredEvalRun, run: RunId) -> float | None:
    """What the results say that the rollout cost, None where nobody knows."""
    rows = stored.results["rows"] if stored.results is not None else ()
    runs = (one for row in rows if row["row_index"] == run.row for one in row["runs"])
    return next(
        (one.get("cost_usd") for one in runs if (one["run_index"], is_own(one)) == (run.index, not run.is_baseline)),
        None,
    )


def _circumstances(record: RunRecord, cost: float | None) -> str:
    usage = record.usage
    said = [
        *([f"model {escaped(record.model)}"] if record.model else []),
        f"rollout {seconds(record.duration_ms / 1000)}",
        f"scoring {seconds(record.scoring_ms / 1000)}",
        "tokens unknown"
        if usage is None
        else f"{count(usage.get('input_tokens', 0))} + {count(usage.get('output_tokens', 0))} tokens",
        *([money(cost)] if cost is not None else []),
        *([f"finish reason {escaped(record.finish_reason)}"] if record.finish_reason else []),
        *([plural(record.retries, "repeated request")] if record.retries else []),
        *([f"attempt {record.attempt}"] if record.attempt > 1 else []),
    ]
    return ", ".join(said)


def _scores(story: _Story, judging: PassRule | None) -> Iterator[str]:
    record = story.record
    for name in story.scorers:
        aside = "" if judging is None or name in judging.deciding else " (does not decide)"
        if name in record.scores:
            value = record.scores[name]
            yield (f"{name} {value:g}" if judging is None else score_line(value, judging.threshold(name), name)) + aside
        elif name in record.scorer_errors:
            failed = record.scorer_errors[name]
            yield f"{name}: {escaped(failed.message)}{aside}"
            yield from _indented(failed.details)


def _error(story: _Story) -> Iterator[str]:
    if story.record.error is not None:
        yield f"{_INDENT}error: {escaped(story.record.error)}"
        yield from _indented(story.details)


def _message(message: Mapping[str, Any]) -> Iterator[str]:
    answered = f" ({escaped(str(message['tool_call_id']))})" if message.get("tool_call_id") else ""
    yield f"{escaped(str(message.get('role')))}{answered}:"
    yield from _indented(_content(message.get("content")))
    if message.get("refusal"):
        yield from _indented(f"(refused: {message['refusal']})")
    for call in message.get("tool_calls") or []:
        yield from _indented(_call(call))


def _content(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(map(_part, content))
    return "" if content is None else str(content)


def _part(part: object) -> str:
    if isinstance(part, dict):
        return str(part["text"]) if isinstance(part.get("text"), str) else f"[{part.get('type', 'part')}]"
    return str(part)


def _call(call: object) -> str:
    call = call if isinstance(call, dict) else {}
    function = call.get("function") or {}
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"-> {function.get('name')}({written}) ({call.get('id')})"


def _indented(text: str) -> list[str]:
    return [f"{_INDENT}{_INDENT}{line}".rstrip() for line in escaped(text).rstrip("\n").split("\n")] if text else []
