"""Any number of eval runs side by side, each compared with the first, as a session compares the evals of one config.

The figures are those that the session wrote, if the same runs are named in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_osmosis.config import read_entries
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.results.compared_runs import read_side
from pytest_osmosis.results.entry_table import EntryPlace, entry_table
from pytest_osmosis.results.results import Results


def entries_of(folder: Path, name: str) -> list[str]:
    """Return the names of the evals of a config with several, [] for anything else."""
    path = folder / name
    several = read_entries(path) if name.endswith(".toml") and path.is_file() else None
    return [] if several is None else [entry.name for entry in several.entries]


def compared_with_first(folder: Path, names: Sequence[str]) -> list[Results]:
    """Return the results of eval runs, or of results files, each compared with the first.

    Raises `OsmosisError` if no run has a name, if one cannot be read or judged, or if one is named twice.
    """
    found = [_read(folder, name) for name in names]
    if twice := [name for name, times in Counter(label for label, _ in found).items() if times > 1]:
        raise OsmosisError(f"{twice[0]}: is named twice; name different eval runs")
    evals = Counter(results.description.name for _, results in found)
    made: dict[str, Results] = {}
    for label, results in found:
        name = results.description.name
        name = name if evals[name] == 1 else f"{name} ({label})"
        made[name] = replace(results, description=replace(results.description, name=name))
    configs = list(dict.fromkeys(str(results.description.extra.get("path", "")) for results in made.values()))
    table = entry_table(configs[0] if len(configs) == 1 else "", made)
    return [replace(results, among=EntryPlace(name, table)) for name, results in made.items()]


def _read(folder: Path, name: str) -> tuple[str, Results]:
    """Return the name of an eval run, or the path of a results file, and its results."""
    side = read_side("", folder, name)
    if side.stored is None or side.has_ended:
        return side.name, side.results
    has_ended = side.stored.lifecycle.has_ended
    why = "its run did not end; go on with it first" if has_ended else "its run has not ended yet"
    return side.name, replace(side.results, stopped=why)
