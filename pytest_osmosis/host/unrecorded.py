"""The error of a request that a replay does not know: what was recorded in its place, and what has changed."""

from __future__ import annotations

import json
from collections.abc import Collection
from difflib import unified_diff
from textwrap import wrap
from typing import TYPE_CHECKING

from pytest_osmosis.cassettes.exchange import ROLLOUT, Body, Fingerprint
from pytest_osmosis.cassettes.reader import AskerAnswers, Stored
from pytest_osmosis.errors import CassetteError, ModelError
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import one_line, shortened

if TYPE_CHECKING:
    from pytest_osmosis.host.exchanges import AskedRequest, AskerExchanges

RECORD_NEW = "--osmosis-record=new records what is missing"
EDITED = "(the requests are equal, but the digest in the cassette is that of another one: it was edited by hand)"
TOO_LONG = "(they differ in the middle of a text that is too long to be shown)"
LINE_CHARS = 100
"""Longer lines of text are wrapped, so that a changed word does not show the whole paragraph twice."""
MOST_TEXT_CHARS = 20_000
"""A longer line of text is compared without its middle."""
MOST_LINES = 60
MOST_RUNS = 5


def unrecorded(exchanges: AskerExchanges, asked: AskedRequest) -> ModelError:
    """Return the error of a request that has no answer. Its details show the difference to the recorded one."""
    why, details = _why(exchanges, asked)
    return ModelError(f"the cassette has no answer: {why}; {RECORD_NEW}", details=details)


def _why(exchanges: AskerExchanges, asked: AskedRequest) -> tuple[str, str]:
    answers, asker = exchanges.answers, exchanges.asker
    whose = "the rollout" if asker.name == ROLLOUT else asker.name
    if not answers.n:
        runs = exchanges.store.runs
        if asker.run in runs:
            return f"it holds this run, but nothing that {whose} asked", ""
        return f"it does not hold this run, but {listed(sorted(runs), MOST_RUNS) or 'none'}", ""
    left = answers.left
    if not left:
        recorded = plural(answers.n, "request")
        return f"{recorded} of {whose} were recorded and are answered, and this is request {asked.turn}", ""
    try:
        nearest, request = _nearest(answers, left, asked)
    except CassetteError as error:
        return f"request {asked.turn} of {whose} was recorded differently ({one_line(str(error))})", ""
    lines = difference(request, asked.body) or [EDITED if request == asked.body else TOO_LONG]
    turn = nearest.head.turn
    if turn == asked.turn:
        return f"request {turn} of {whose} has changed since it was recorded", "\n".join(lines)
    similar = f"request {turn} of {answers.n} is the most similar one"
    return f"request {asked.turn} of {whose} was not recorded; {similar}", "\n".join(lines)


def _nearest(answers: AskerAnswers, left: Collection[Stored], asked: AskedRequest) -> tuple[Stored, Body]:
    """Return the unused exchange of the same turn, or else the one with the most messages in common."""
    same = next((each for each in left if each.head.turn == asked.turn), None)
    if same is not None:
        return same, answers.request(same)
    requests = [(each, answers.request(each)) for each in left]
    return max(requests, key=lambda pair: _common(pair[1], asked))


def _common(request: Body, asked: AskedRequest) -> int:
    """Return how many messages at their beginnings two requests have in common."""
    ours, theirs = asked.fingerprint.prefixes, Fingerprint.of(request).prefixes
    return sum(a == b for a, b in zip(ours, theirs, strict=False))


def difference(recorded: Body, request: Body) -> list[str]:
    """Return the lines of a unified diff of two requests as JSON; [] for equal ones.

    It is cut after `MOST_LINES` lines, and says how many are left out.
    """
    lines = list(unified_diff(_lines(recorded), _lines(request), "recorded", "asked now", lineterm=""))
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[:MOST_LINES], f"[... {len(lines) - MOST_LINES:,} further lines left out ...]"]


def _lines(request: Body) -> list[str]:
    """Return a request as JSON, with the line breaks of its texts."""
    text = json.dumps(request, indent=1, ensure_ascii=False, sort_keys=True).replace("\\n", "\n")
    lines = (shortened(line, MOST_TEXT_CHARS) for line in text.split("\n"))
    return [part for line in lines for part in wrap(line, LINE_CHARS, drop_whitespace=False) or [""]]
