"""The error of a request that a replay does not know: what was recorded in its place, and what has changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_osmosis.cassettes.difference import difference
from pytest_osmosis.cassettes.exchange import ROLLOUT, Body, Fingerprint, Run
from pytest_osmosis.cassettes.reader import AskerAnswers, Stored
from pytest_osmosis.errors import CassetteError, ModelError
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import one_line

if TYPE_CHECKING:
    from pytest_osmosis.host.exchanges import AskedRequest, AskerExchanges

RECORD_NEW = "--osmosis-record=new records what is missing"
EDITED = "(the requests are equal, but the digest in the cassette is that of another one: it was edited by hand)"
TOO_LONG = "(they differ in the middle of a text that is too long to be shown)"
MOST_RANGES = 6


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
        return f"it does not hold this run, but {_runs_in_words(runs)}", ""
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


def _runs_in_words(runs: Collection[Run]) -> str:
    """Return the runs of a cassette, as ranges of rows for each set of runs.

    >>> _runs_in_words({Run(row, run) for row in (0, 1, 2, 7) for run in (0, 1)} | {Run(9, 0)})
    'run 0-1 of row 0-2 and 7, run 0 of row 9'
    """
    if not runs:
        return "no run"
    of_row: dict[int, set[int]] = {}
    for row, run, _ in runs:
        of_row.setdefault(row, set()).add(run)
    rows_of: dict[str, list[int]] = {}
    for row, numbers in sorted(of_row.items()):
        rows_of.setdefault(_ranges(numbers), []).append(row)
    groups = [f"run {numbers} of row {_ranges(rows)}" for numbers, rows in rows_of.items()]
    more = [f"{plural(len(groups) - MOST_RANGES, 'further group')}"] if len(groups) > MOST_RANGES else []
    return ", ".join(groups[:MOST_RANGES] + more)


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges.

    >>> _ranges([3, 0, 1, 2, 7])
    '0-3 and 7'
    """
    ranges = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        ranges.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    shown = ranges if len(ranges) <= MOST_RANGES else [*ranges[: MOST_RANGES - 1], "...", ranges[-1]]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
