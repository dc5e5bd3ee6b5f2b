"""A probe for bugs that a broad handler hides: `except Exception: return 0.0` turns a typo into a score.

It reports errors that no input explains (a missing name or attribute), and any error that every answer causes.
Catching errors that text can cause, like a ValueError, is fine.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.lab.calls import CallInput, ScoredCall, SwallowedException
from pytest_osmosis.lab.findings import NEVER_THE_INPUT, LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import ProbeContext

MOST_INPUTS = 60


def probe(context: ProbeContext) -> LabResult:
    inputs = context.affordable(_inputs(context), 1)
    watched = [ScoredCall(call_input, context.call(call_input, watch=True)) for call_input in inputs]
    return LabResult(tuple(_findings(context, watched)))


def _inputs(context: ProbeContext) -> list[CallInput]:
    answers = context.answers
    pairs = [call_input for pair in answers.pairs for call_input in (pair.right, pair.wrong)]
    others = [
        call_input.answering(text) for call_input in answers.usable[:3] for text in ("", "I do not know.", "{}", "[]")
    ]
    return [*pairs, *others, *(call.input for call in answers.calls)][:MOST_INPUTS]


def _findings(context: ProbeContext, watched: list[ScoredCall]) -> Iterator[RewardFinding]:
    seen: set[tuple[str, int]] = set()
    always = _always(watched)
    for call in sorted(watched, key=lambda call: len(call.input.shown(context.target))):
        for caught in call.outcome.caught:
            if (caught.error, caught.line) in seen:
                continue
            if caught.error in NEVER_THE_INPUT or (caught.error, caught.line) in always:
                seen.add((caught.error, caught.line))
                yield _finding(context, call, caught, always=(caught.error, caught.line) in always)


def _always(watched: list[ScoredCall]) -> set[tuple[str, int]]:
    """Return the exceptions swallowed in every call; none if the scores differ."""
    scores = {call.outcome.score for call in watched}
    if len(watched) < 2 or len(scores) > 1:
        return set()
    each = [{(caught.error, caught.line) for caught in call.outcome.caught} for call in watched]
    return set.intersection(*each)


def _finding(context: ProbeContext, call: ScoredCall, caught: SwallowedException, *, always: bool) -> RewardFinding:
    file = context.target.path.name
    error = f"{caught.error}: {caught.text} ({file}:{caught.line})"
    handler = f"`{caught.clause}:` ({file}:{caught.handler})"
    calls = "every call" if always else call.input.shown(context.target)
    fix = "fix the error, and catch only exceptions that an answer can cause, such as `except ValueError:`"
    example = f"{calls} {call.outcome.description}, because {error} is caught by {handler}"
    return RewardFinding("swallowed", "a bug of its own is swallowed and becomes a score", example, fix)
