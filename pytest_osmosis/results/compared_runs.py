"""The comparison of any two eval runs, A and B: runs that ended or did not, and results files like baselines.

B is compared with A as an eval is with its baseline (`verdicts.comparison`): over the rows that both measured, each by
the share of its measured runs that passed. Rows are the same if their published digests are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis import stats
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.find_run import find_run, is_run, stored
from pytest_osmosis.record.manifest import Manifest
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.published_results import results_of
from pytest_osmosis.results.read import PublishedResults, read_results
from pytest_osmosis.results.results import Results, by_row
from pytest_osmosis.results.stored_results import StoredResults, read_stored
from pytest_osmosis.stats import Interval
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.verdicts import comparison
from pytest_osmosis.verdicts.comparison import ChangedRow, RowComparison, RowRuns, shares
from pytest_osmosis.verdicts.pass_rule import PassRule


class NothingInCommon(OsmosisError):
    """No row of one eval run has the content of a row of the other. `reason` says it without what a command can do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}; --table compares them all the same, as other rows")


@dataclass(frozen=True)
class Side:
    """One of the two eval runs. `letter` is "A" or "B", `document` its published object.

    `stored` is its run directory, None for a results file whose run is gone: then answers are not known.
    """

    letter: str
    name: str
    path: Path
    state: str
    document: Mapping[str, Any]
    results: Results
    is_file: bool
    stored: StoredResults | None

    @property
    def manifest(self) -> Manifest | None:
        return None if self.stored is None else self.stored.run.manifest

    @property
    def config(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.document["config"]
        return settings

    @property
    def summary(self) -> Mapping[str, Any]:
        sums: Mapping[str, Any] = self.document["summary"]
        return sums

    @property
    def provenance(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self.document["provenance"]
        return facts

    @property
    def rule(self) -> PassRule:
        return self.results.pass_rule

    @cached_property
    def records(self) -> Mapping[int, Sequence[RunRecord]]:
        """The runs of its own model by row."""
        return by_row(self.results.records)

    @property
    def caveats(self) -> list[str]:
        """The reasons for which its rows are no fair sample of its eval."""
        if self.document.get("stopped_by") == "decided":
            return ["was stopped once its gates were decided, and the runs until then favour that verdict"]
        if self.document["partial"] and self.has_ended and "shard" not in self.document:
            return ["is a part of its plan; rows that were chosen by their outcome, as --lf does, are no fair sample"]
        return []

    @property
    def has_ended(self) -> bool:
        return self.is_file or self.stored is None or not self.stored.is_from_journal


class ComparedRate(NamedTuple):
    """A pass rate over the compared rows, and its interval."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """Two eval runs, and the comparison of B with A over the rows that both measured."""

    a: Side
    b: Side
    rows: RowComparison
    rate_a: ComparedRate
    rate_b: ComparedRate
    caveats: Sequence[str] = ()
    least_p: float | None = field(default=None)
    """The smallest p that so few rows can give, None if there are enough for a significant one."""

    @property
    def changed(self) -> Sequence[ChangedRow]:
        """The rows that B passes more or less often than A, the worse ones first."""
        return self.rows.changed_rows

    @property
    def meaning(self) -> str | None:
        """ "better", "worse" or "chance"; None if the rows are no fair sample, or too few for any verdict."""
        if self.caveats or self.least_p is not None:
            return None
        return {"improvement": "better", "regression": "worse"}.get(self.rows.meaning, "chance")


def read_side(letter: str, folder: Path, name: str) -> Side:
    """Return the eval run, or the results file, that `name` means.

    Raises `OsmosisError` if there is none, or it cannot be read or judged.
    """
    path = folder / name
    if not name.endswith(".toml") and something_at(path) and not path.is_dir() and not _is_of_its_run(path):
        return _side_of_file(letter, folder, path)
    return side_of(letter, read_stored(stored(find_run(folder, name))))


def side_of(letter: str, found: StoredResults) -> Side:
    """Return a stored eval run as a side."""
    directory = found.run.directory
    return Side(letter, directory.name, directory.path, _state(found), found.document, found.results, False, found)


def _is_of_its_run(path: Path) -> bool:
    """Return True for the results in a run directory, which mean the eval run."""
    return is_run(path.parent) and path.name == RunDirectory(path.parent).results.name


def _state(found: StoredResults) -> str:
    if not found.is_from_journal:
        return found.status
    ended, planned = len(found.records), found.run.manifest.selected.n_rollouts
    return f"{found.status}, {count(ended)} of {plural(planned, 'run')} ended"


def _side_of_file(letter: str, folder: Path, path: Path) -> Side:
    read = read_results(path)
    state = f"{read.status}, a results file"
    return Side(letter, shown(path), path, state, read.document, results_of(read), True, _run_of(folder, path, read))


def _run_of(folder: Path, path: Path, read: PublishedResults) -> StoredResults | None:
    """Return the eval run that wrote a results file, None if it is gone or cannot be read."""
    try:
        return read_stored(stored(find_run(folder, str(path))))
    except OsmosisError:
        return None


def compare_runs(a: Side, b: Side) -> ComparedRuns:
    """Compare B with A. Raises `OsmosisError` if nothing can be compared, and says why."""
    if a.path.resolve() == b.path.resolve():
        raise OsmosisError(f"{a.name} and {b.name}: are the same eval run; name two")
    matched = comparison.matched(*reversed(comparable_rows(a, b)))
    if not matched.pairs:
        raise NothingInCommon(
            f"nothing can be compared: no row of A has the content of a row of B ({_rows_text(a)}; {_rows_text(b)})"
        )
    compared = comparison.compare("baseline", a.name, matched, started_at=a.provenance.get("started_at"))
    if compared.paired is None:
        raise OsmosisError(
            f"nothing can be compared: of {plural(len(matched.pairs), 'common row')}, none was measured in both "
            f"({_measured_text(a)}; {_measured_text(b)})"
        )
    new, old = shares(matched.pairs)
    least = 2.0 ** (1 - compared.n_rows)
    return ComparedRuns(
        a,
        b,
        compared,
        _rate(old),
        _rate(new),
        [f"{side.letter} {caveat}" for side in (a, b) for caveat in side.caveats],
        least if least >= stats.ALPHA else None,
    )


def comparable_rows(a: Side, b: Side) -> tuple[list[RowRuns], list[RowRuns]]:
    """Return the rows of A, and those of B. Raises `OsmosisError` if no run of one has ended."""
    without = [side.letter for side in (a, b) if all(record.status == "pending" for record in side.results.records)]
    if without:
        raise OsmosisError(f"nothing can be compared: no run of {' and '.join(without)} ended")
    return a.results.row_runs(), b.results.row_runs()


def _rows_text(side: Side) -> str:
    return f"{side.letter}: {plural(len(side.records), 'row')} of {json.dumps(side.config['dataset'])}"


def _measured_text(side: Side) -> str:
    overall = side.results.overall
    return f"{side.letter} measured {count(overall.n_measured)} of {plural(overall.n_runs, 'run')}"


def _rate(values: Sequence[float]) -> ComparedRate:
    return ComparedRate(stats.mean(values), stats.gaffke([[value] for value in values]))
