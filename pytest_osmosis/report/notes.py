"""The reports of user code about a run besides its scores: reasons, metrics and further fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pytest_osmosis.formats.events import ROLLOUT
from pytest_osmosis.record.run_notes import RunNotes
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.answers import titled
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.pass_rule import PassRule

T = TypeVar("T")

IN_A_LINE = 80
"""The most characters of a reason in a line. Of a longer one the line has the beginning."""


def reason_in_a_line(record: RunRecord, pass_rule: PassRule) -> str:
    """Return the beginning of the reason for the first score that kept a run from passing, "" without one."""
    unmet = (name for name in pass_rule.deciding if not pass_rule.met(record, name) and name in record.reasons)
    name = next(unmet, None)
    if name is None:
        return ""
    flat = " ".join(record.reasons[name].split())
    return one_line(flat if len(flat) <= IN_A_LINE else f"{flat[: IN_A_LINE - 3].rstrip()}...")


def note_lines(notes: RunNotes, scorers: Sequence[str], shorten: Callable[[str], str], *, said: str = "") -> list[str]:
    """Return reasons, metrics and fields, each source in lines of its own, without a reason that was `said` in full.

    `shorten` shortens long texts.
    """
    lines = []
    for name, reason in notes.reasons.items():
        if not (said and _fits(reason) and one_line(reason) == said):
            lines += titled(f"reason{_of(name, scorers)}", reason, shorten)
    for source, metrics in _rollout_last(notes.metrics):
        listed = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
        lines += titled(f"metrics{_of(source, scorers)}", " ".join(listed.split()), shorten)
    for source, text in _rollout_last(notes.fields):
        fields = json.dumps(json.loads(text), ensure_ascii=False)
        lines += titled(f"{'info' if source == ROLLOUT else 'extra fields'}{_of(source, scorers)}", fields, shorten)
    return lines


def _rollout_last(notes: Mapping[str, T]) -> list[tuple[str, T]]:
    return sorted(notes.items(), key=lambda note: note[0] == ROLLOUT)


def _of(source: str, scorers: Sequence[str]) -> str:
    """Return whose report it is, "" if there is only one function that it can be of."""
    if source == ROLLOUT:
        return " of the rollout"
    return f" of {source}" if len(scorers) > 1 else ""


def _fits(reason: str) -> bool:
    return len(reason) <= IN_A_LINE and "\n" not in reason
