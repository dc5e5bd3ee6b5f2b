"""The filters of `pytest-osmosis runs list`: which eval runs its options select."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import get_args

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import eval_of
from pytest_osmosis.record.lifecycle import Status
from pytest_osmosis.results.run_entry import RunEntry
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.natural_order import natural_key
from pytest_osmosis.text.suggest import closest

STATUSES = (*get_args(Status), "unreadable")
MOST_LISTED = 10

FILTERS: Mapping[str, Callable[[RunEntry], str | None]] = {
    "status": lambda entry: entry.status,
    "model": lambda entry: entry.model,
    "dataset": lambda entry: entry.dataset,
    "rollout": lambda entry: entry.rollout,
}
"""The value that an option compares, by its name."""


def eval_name_of(entry: RunEntry) -> str | None:
    return entry.eval or eval_of(entry.name)


def selected(entries: Sequence[RunEntry], wanted: Mapping[str, str | None]) -> list[RunEntry]:
    """Return the entries that every filter selects. `wanted` holds values by option, None for options not typed.

    A value selects what is equal to it, else what begins with it, else what matches it as a pattern (`*-mini`). Raises
    `OsmosisError`, with all that there is, for values that no entry has. Without entries only a status can be wrong.
    """
    problems = []
    for option, value in wanted.items():
        if value is None or (not entries and option != "status"):
            continue
        value_of = FILTERS[option]
        there = {found for entry in entries if (found := value_of(entry)) is not None}
        matches = _matches(value, there)
        if not matches and not (option == "status" and value in STATUSES):
            problems.append(_problem(option, value, there))
            continue
        entries = [entry for entry in entries if value_of(entry) in matches]
    if problems:
        raise OsmosisError("\n".join(problems))
    return list(entries)


def _matches(value: str, there: set[str]) -> set[str]:
    return (
        {each for each in there if each == value}
        or {each for each in there if each.startswith(value)}
        or {each for each in there if fnmatchcase(each, value)}
    )


def _problem(option: str, value: str, there: set[str]) -> str:
    names = list(STATUSES) if option == "status" else sorted(there, key=natural_key)
    close = closest(value, names)
    hint = f'did you mean "{close}"? ' if close else ""
    if option == "status":
        return f'--status "{value}": not a status; {hint}there are {listed(names, MOST_LISTED)}'
    them = f"those are {listed(names, MOST_LISTED)}" if names else f"none of them has a known {option}"
    return f'--{option} "{value}": no listed run has it; {hint}{them}'
