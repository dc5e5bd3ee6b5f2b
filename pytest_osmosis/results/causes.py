"""The causes that kept runs from being scored: errors, grouped by all that they have in common.

Messages that differ only in numbers, ids, ports or times are one cause. Its text is the message of its first run,
without what the number of tries, or the answer of a judge, adds to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_osmosis.errors import ITS_ANSWER
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.text.numbers import count, pattern_of, plural
from pytest_osmosis.text.safe import fitted, one_line
from pytest_osmosis.verdicts.pass_rule import UNMEASURED, PassRule, reward_error

TEXT_CHARS = 200
SEARCHED_CHARS = 2_000
"""The part of a message that decides which cause it is."""
SHORT_COLUMNS = 80
"""The width of a cause within a sentence."""
FIRST_RUNS = 5
"""The number of runs that are published of each cause."""

_ANSWERED = "the server answered "
_TRIES = re.compile(
    r"(; (no time is left for .*|asked to wait .* left|the next retry would be in .* left))?( \(\d+ tries\))?$",
    re.DOTALL,
)
"""The end of a message by which the last of several tries differs from the first (`models.retry`)."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause, with the boundary where its `runs` broke. The runs are in order, and there is at least one."""

    text: str
    boundary: str
    runs: Sequence[RunId]

    @property
    def is_measured(self) -> bool:
        """True if its runs count as failed, False if they were not measured."""
        return self.boundary not in UNMEASURED

    @property
    def first(self) -> RunId:
        return self.runs[0]

    @property
    def short_text(self) -> str:
        """The cause as a part of a sentence: "502 Bad Gateway"."""
        return fitted(self.text, SHORT_COLUMNS)

    def to_json(self) -> dict[str, Any]:
        """Return the published form, with the first of its runs."""
        return {
            "text": self.text,
            "boundary": self.boundary,
            "measured": self.is_measured,
            "runs": len(self.runs),
            "first_runs": list(map(str, self.runs[:FIRST_RUNS])),
        }


def causes_of(records: Iterable[RunRecord], pass_rule: PassRule) -> list[Cause]:
    """Return the causes of all runs that were not scored, the most frequent first."""
    return _grouped(
        _Error(record.run, boundary, *_error(record, pass_rule))
        for record in records
        if (boundary := pass_rule.boundary(record)) is not None
    )


def causes_aside(records: Iterable[RunRecord], pass_rule: PassRule) -> list[Cause]:
    """Return the causes for which functions that do not decide gave no score, the most frequent first."""
    aside = [name for name in pass_rule.scorers if name not in pass_rule.deciding]
    return _grouped(
        _Error(record.run, reward_error(record, name).boundary, name, _message(record, name))
        for record in records
        for name in aside
        if record.status == "finished" and name not in record.scores
    )


class _Error(NamedTuple):
    """The error of a run. `function` is the one that gave no score, "" if the rollout broke."""

    run: RunId
    boundary: str
    function: str
    message: str


def _grouped(errors: Iterable[_Error]) -> list[Cause]:
    groups: dict[tuple[str, ...], list[_Error]] = {}
    for error in sorted(errors):
        key = error.boundary, error.function, pattern_of(error.message[:SEARCHED_CHARS])
        groups.setdefault(key, []).append(error)
    causes = [Cause(_text(group[0]), group[0].boundary, [error.run for error in group]) for group in groups.values()]
    return sorted(causes, key=lambda cause: -len(cause.runs))


def _error(record: RunRecord, pass_rule: PassRule) -> tuple[str, str]:
    """Return the function that gave no score, and the message, without the number of tries."""
    if broken := pass_rule.broken(record):
        return broken[0], _message(record, broken[0])
    return "", _TRIES.sub("", (record.error or "").strip(), count=1)


def _message(record: RunRecord, function: str) -> str:
    """Return why a function gave no score, without the number of tries and the answer of its judge."""
    return _TRIES.sub("", reward_error(record, function).message.partition(ITS_ANSWER)[0], count=1)


def _text(error: _Error) -> str:
    text = one_line(error.message.removeprefix(_ANSWERED), TEXT_CHARS) or "no message"
    return f"{error.function}: {text}" if error.function else text


def too_many(causes: Sequence[Cause], n_runs: int, limit: str) -> str:
    """Return why an eval stopped that could not measure more of its `n_runs` runs than `limit` allows.

    >>> runs = [RunId(row, 0) for row in range(46)]
    >>> too_many([Cause("502 Bad Gateway", "provider", runs), Cause("a bug", "agent", runs)], 120, "10%")
    '46 of 120 runs not measured (limit 10%), mostly 502 Bad Gateway'
    """
    unmeasured = [cause for cause in causes if not cause.is_measured]
    n = sum(len(cause.runs) for cause in unmeasured)
    text = f"{count(n)} of {plural(n_runs, 'run')} not measured (limit {limit})"
    if not unmeasured:
        return text
    often = "mostly" if 2 * len(unmeasured[0].runs) > n else "most often"
    return f"{text}, {often} {unmeasured[0].short_text}"
