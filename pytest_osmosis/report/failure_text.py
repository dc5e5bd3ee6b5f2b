"""The outcome of a run's test: one line that says why it did not pass, and a short block of text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.answers import ScoredAnswer
from pytest_osmosis.report.message_layout import short_text
from pytest_osmosis.report.notes import note_lines, reason_in_a_line
from pytest_osmosis.text.framework_messages import as_chat_messages
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import escaped, one_line, shortened
from pytest_osmosis.verdicts.pass_rule import Outcome, PassRule, kind_of, reason_of, score_line

LAST_MESSAGES = 4
MESSAGE_CHARS = 600
DETAILS_CHARS = 16_000


def outcome_of(
    record: RunRecord,
    pass_rule: PassRule,
    *,
    messages: Sequence[Mapping[str, Any]] = (),
    n_prompt: int = 0,
    ground_truth: object = None,
    details: str = "",
    output: Sequence[tuple[str, str]] = (),
    where: str = "",
    rerun: Callable[[RunId], str] = str,
) -> Outcome:
    """Return the outcome of a run's test. `where` is its dataset line, `rerun` returns the command that repeats it.

    The first `n_prompt` of the `messages` are the prompt's. An answer is shown next to its `ground_truth` if it was
    scored, and after an error of the function that should have scored it.
    """
    kind = kind_of(record, pass_rule)
    reason = "" if kind == "passed" else one_line(reason_of(record, pass_rule))
    answer = ScoredAnswer.of(messages, n_prompt, ground_truth)
    said = reason_in_a_line(record, pass_rule) if kind == "failed" else ""
    if kind == "failed" and (line := answer_line(record, pass_rule, answer)):
        reason = f"{reason}: {line}"
    text = ""
    if kind in ("failed", "error"):
        several = len(pass_rule.scorers) > 1 and record.status == "finished"
        scores = [f"  {line}" for _, line in score_lines(record, pass_rule.scorers, pass_rule)] if several else []
        answers = answer.lines(_shortened, after_line=kind == "failed") if record.boundary is None else []
        notes = note_lines(record.notes, pass_rule.scorers, _shortened, said=said)
        parts = [reason, *scores, *_details(details), *notes, *answers, *conversation_lines(messages)]
        text = "\n".join([*parts, f"dataset row: {where}", f"run it again: {rerun(record.run)}"])
    return Outcome(
        kind,
        reason,
        text,
        tuple((title, escaped(printed)) for title, printed in output),
        (record.duration_ms + record.scoring_ms) / 1000,
    )


def answer_line(record: RunRecord, pass_rule: PassRule, answer: ScoredAnswer) -> str:
    """Return in one line the reason for the score of a scored run, and its answer next to the ground truth."""
    return "; ".join(part for part in (reason_in_a_line(record, pass_rule), answer.line) if part)


def _shortened(text: str) -> str:
    return shortened(text, MESSAGE_CHARS)


def score_lines(record: RunRecord, scorers: Sequence[str], pass_rule: PassRule) -> Iterator[tuple[str, str]]:
    """Yield the name of each function that scored the run, or failed to, with a line on it."""
    for name in scorers:
        aside = "" if name in pass_rule.deciding else " (does not decide)"
        if name in record.scores:
            yield name, score_line(record.scores[name], pass_rule.threshold(name), name) + aside
        elif name in record.scorer_errors:
            yield name, f"{name}: {one_line(record.scorer_errors[name].message)}{aside}"


def _details(details: str) -> list[str]:
    return [escaped(shortened(details.rstrip(), DETAILS_CHARS))] if details else []


def conversation_lines(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    if not messages:
        return []
    shown = as_chat_messages(messages)
    last = shown[-LAST_MESSAGES:]
    head = "conversation:" if len(last) == len(shown) else f"conversation, last {len(last)} of {len(shown)} messages:"
    return [head, *(f"  {_message(message)}" for message in last)]


def _message(message: object) -> str:
    if not isinstance(message, Mapping):
        return one_line(json.dumps(message))
    text = escaped(short_text(message, MESSAGE_CHARS)).replace("\n", "\n    ")
    return f"{one_line(str(message.get('role')))}: {text}"


def lost_text(n: int) -> str:
    """Return how many rollouts were lost at most: their end is not stored, as their process or session ended before.

    >>> lost_text(1)
    'up to 1 rollout was lost in flight, possibly billed'
    """
    return f"up to {plural(n, 'rollout')} {'was' if n == 1 else 'were'} lost in flight, possibly billed"
