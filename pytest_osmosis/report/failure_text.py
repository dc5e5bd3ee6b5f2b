"""What a run's test shows: one line why it did not pass, and a short block around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_osmosis.models.base import text_of
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.text.safe import escaped, one_line, shortened
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, kind_of, reason_of, score_line

LAST_MESSAGES = 4
MESSAGE_CHARS = 600
DETAILS_CHARS = 16_000


def outcome_of(
    record: RunRecord,
    judging: PassRule,
    *,
    messages: Sequence[Mapping[str, Any]] = (),
    details: str = "",
    output: Sequence[tuple[str, str]] = (),
    where: str = "",
    rerun: Callable[[RunId], str] = str,
) -> Outcome:
    """The outcome of a run's test. `where` is its dataset line, `rerun` gives the command that repeats it."""
    kind = kind_of(record, judging)
    reason = "" if kind == "passed" else one_line(reason_of(record, judging))
    text = ""
    if kind in ("failed", "error"):
        parts = [reason, *_scores(record, judging), *_details(details), *conversation_lines(messages)]
        text = "\n".join([*parts, f"dataset row: {where}", f"run it again: {rerun(record.run)}"])
    return Outcome(
        kind,
        reason,
        text,
        tuple((title, escaped(said)) for title, said in output),
        (record.duration_ms + record.scoring_ms) / 1000,
    )


def _scores(record: RunRecord, judging: PassRule) -> list[str]:
    """A line for each function, where there are several."""
    if len(judging.scorers) < 2 or record.status != "finished":
        return []
    lines = []
    for name in judging.scorers:
        aside = "" if name in judging.deciding else " (does not decide)"
        if name in record.scores:
            lines.append(f"  {score_line(record.scores[name], judging.threshold(name), name)}{aside}")
        elif name in record.scorer_errors:
            lines.append(f"  {name}: {one_line(record.scorer_errors[name].message)}{aside}")
    return lines


def _details(details: str) -> list[str]:
    return [escaped(shortened(details.rstrip(), DETAILS_CHARS))] if details else []


def conversation_lines(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The end of a conversation."""
    if not messages:
        return []
    last = messages[-LAST_MESSAGES:]
    head = (
        "conversation:"
        if len(last) == len(messages)
        else f"conversation, last {len(last)} of {len(messages)} messages:"
    )
    return [head, *(f"  {_message(message)}" for message in last)]


def _message(message: object) -> str:
    """A message, whatever an agent made of it."""
    if not isinstance(message, Mapping):
        return one_line(json.dumps(message))
    said = [text_of(message.get("content"))]
    if message.get("refusal"):
        said.append(f"(refused: {message['refusal']})")
    calls = message.get("tool_calls")
    said += [_call(call) for call in calls] if isinstance(calls, list) else []
    text = escaped(shortened(" ".join(part for part in said if part) or "(no text)", MESSAGE_CHARS))
    return f"{one_line(str(message.get('role')))}: " + text.replace("\n", "\n    ")


def _call(call: object) -> str:
    """A tool call as code: `-> multiply({"a": 2})`."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return f"-> {json.dumps(call)}"
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"-> {function.get('name')}({written})"
