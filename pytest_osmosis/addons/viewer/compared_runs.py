"""The comparison of any two eval runs, A and B: runs that ended or did not, and results files like baselines.

B is compared with A as an eval is with its baseline (`verdicts.comparison`): over the rows that both measured, each by
the share of its measured runs that passed. Rows are the same if their published digests are.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis import stats
from pytest_osmosis.addons.viewer.stored_results import StoredResults, read_stored
from pytest_osmosis.config import read_entries
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.formats.codec import encode
from pytest_osmosis.record.find_run import find_run, is_run, stored
from pytest_osmosis.record.lifecycle import Lifecycle
from pytest_osmosis.record.manifest import Manifest
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_record import NOTHING, Event, RunRecord
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.results.publish import published_settings
from pytest_osmosis.results.read import read_results, results_of
from pytest_osmosis.results.results import Results, by_row, end_of, row_runs
from pytest_osmosis.stats import Interval, Paired
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.verdicts import comparison
from pytest_osmosis.verdicts.comparison import ChangedRow, Direction, RowComparison, RowRuns, direction, least_p_of


class NothingInCommon(OsmosisError):
    """No row of one eval run has the content of a row of the other. `reason` says it without what a command can do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}; --table compares them all the same, as other rows")


class Side(Struct, frozen=True, dict=True):
    """One of the two eval runs. `letter` is "A" or "B".

    `stored` is its run directory, None for a results file whose run is gone: then answers are not known.
    """

    letter: str
    name: str
    path: Path
    state: str
    results: Results
    is_file: bool
    stored: StoredResults | None

    @property
    def manifest(self) -> Manifest | None:
        return None if self.stored is None else self.stored.run.manifest

    @property
    def config(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = encode(published_settings(self.results))
        return settings

    @cached_property
    def records(self) -> Mapping[int, Sequence[RunRecord]]:
        """The runs of its own model by row."""
        return by_row(self.results.records)

    @property
    def caveats(self) -> list[str]:
        """The reasons for which its rows are no fair sample of its eval."""
        if self.end.stopped_by == "decided":
            return ["was stopped once its gates were decided, and the runs until then favour that verdict"]
        if self.results.partial and self.has_ended and self.results.shard is None:
            return ["is a part of its plan; rows that were chosen by their outcome, as --lf does, are no fair sample"]
        return []

    @property
    def has_ended(self) -> bool:
        return self.is_file or self.stored is None or not self.stored.is_from_journal

    @property
    def end(self) -> Lifecycle:
        """The status of the eval run, with the reason."""
        return end_of(self.results) if self.has_ended or self.stored is None else self.stored.lifecycle


class ComparedRate(NamedTuple):
    """A pass rate over the compared rows, and its interval."""

    value: float
    interval: Interval


class ComparedRuns(Struct, frozen=True):
    """Two eval runs, and the comparison of B with A over the rows that both measured."""

    a: Side
    b: Side
    rows: RowComparison
    paired: Paired
    rate_a: ComparedRate
    rate_b: ComparedRate

    @property
    def changed(self) -> Sequence[ChangedRow]:
        """The rows that B passes more or less often than A, the worse ones first."""
        return self.rows.changed("baseline")

    @property
    def caveats(self) -> list[str]:
        """The reasons for which the rows are no fair sample."""
        return [f"{side.letter} {caveat}" for side in (self.a, self.b) for caveat in side.caveats]

    @property
    def least_p(self) -> float | None:
        """The smallest p that so few rows can give, None if there are enough for a significant one."""
        return least_p_of(self.rows.n_rows)

    @property
    def meaning(self) -> Direction | None:
        """ "better", "worse" or "chance"; None if the rows are no fair sample, or too few for any verdict."""
        if self.caveats or self.least_p is not None:
            return None
        return direction(self.paired.difference, self.paired.p)


def read_side(letter: str, folder: Path, name: str) -> Side:
    """Return the eval run, or the results file, that `name` means.

    Raises `OsmosisError` if there is none, or it cannot be read or judged.
    """
    path = folder / name
    is_of_its_run = is_run(path.parent) and path.name == RunDirectory(path.parent).results.name  # it means that run
    if not (name.endswith(".toml") or path.is_dir() or is_of_its_run) and something_at(path):
        read = read_results(path)
        run, state = _run_of(folder, path), f"{read.status}, a results file"
        return Side(letter, shown(path), path, state, results_of(read), True, run)
    return side_of(letter, read_stored(stored(find_run(folder, name))))


def side_of(letter: str, found: StoredResults) -> Side:
    """Return a stored eval run as a side."""
    directory = found.run.directory
    return Side(letter, directory.name, directory.path, _state(found), found.results, False, found)


def _state(found: StoredResults) -> str:
    if not found.is_from_journal:
        return found.status
    ended, planned = len(found.records), found.run.manifest.selected.n_rollouts
    return f"{found.status}, {count(ended)} of {plural(planned, 'run')} ended"


def _run_of(folder: Path, path: Path) -> StoredResults | None:
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
    rows = comparison.compare(matched)
    if rows.paired is None:
        raise OsmosisError(
            f"nothing can be compared: of {plural(len(matched.pairs), 'common row')}, none was measured in both "
            f"({_measured_text(a)}; {_measured_text(b)})"
        )
    return ComparedRuns(a, b, rows, rows.paired, _rate(rows.old), _rate(rows.new))


def comparable_rows(a: Side, b: Side) -> tuple[list[RowRuns], list[RowRuns]]:
    """Return the rows of A, and those of B. Raises `OsmosisError` if no run of one has ended."""
    without = [side.letter for side in (a, b) if all(record.status == "pending" for record in side.results.records)]
    if without:
        raise OsmosisError(f"nothing can be compared: no run of {' and '.join(without)} ended")
    return row_runs(a.results), row_runs(b.results)


def _rows_text(side: Side) -> str:
    return f"{side.letter}: {plural(len(side.records), 'row')} of {json.dumps(side.config['dataset'])}"


def _measured_text(side: Side) -> str:
    overall = side.results.overall
    return f"{side.letter} measured {count(overall.n_measured)} of {plural(overall.n_runs, 'run')}"


def _rate(values: Sequence[float]) -> ComparedRate:
    return ComparedRate(stats.mean(values), stats.gaffke([[value] for value in values]))


# -- the settings, code and data in which two eval runs differ ---------------------------------------------

Area = Literal["question", "scoring", "code", "throughput", "versions"]
"""The part of an eval that a difference concerns: the request, the scoring, code and data, or anything else."""


class RunDifference(Struct, frozen=True):
    """One difference, with the value in A and in B, None for one that is not there; both are None for code."""

    what: str
    area: Area
    a: str | None
    b: str | None


_SETTINGS: Mapping[str, tuple[Area, str]] = {
    "name": ("question", "eval"),
    "path": ("question", "config"),
    "model": ("question", "model"),
    "baseline_model": ("question", "baseline's model"),
    "dataset": ("question", "dataset"),
    "selection": ("question", "rows"),
    "n_runs": ("question", "n"),
    "system_prompt": ("question", "system prompt"),
    "eval_fns": ("scoring", "functions"),
    "thresholds": ("scoring", "thresholds"),
    "pass_threshold": ("scoring", "pass_threshold"),
    "decide": ("scoring", "decide"),
    "score_ranges": ("scoring", "score ranges"),
    "batch_size": ("throughput", "batch_size"),
    "price": ("throughput", "price"),
}
"""Keys of published settings, with their areas and names. Others belong to the question."""
_TABLES: Mapping[str, Area] = {"sampling": "question", "judge": "scoring"}
_LEFT_OUT = frozenset({"overridden"})
_SAID = frozenset({"model", "sampling", "baseline"})
"""Tables of the inputs of rollouts that the settings and the address tell."""
_BY_NAME = frozenset({"env", "model.headers"})
"""Tables whose values each manifest hides in its own way."""
_PROVENANCE: Mapping[str, tuple[Area, str]] = {
    "dataset_sha256": ("code", "digest of the dataset"),
    "pytest_osmosis": ("versions", "pytest-osmosis"),
    "python": ("versions", "Python"),
    "platform": ("versions", "platform"),
}
_SHORT = 12
_MOST_FILES = 5


def run_differences(a: Side, b: Side) -> list[RunDifference]:
    """Return the differences, those of the question first. What only one side knows is no difference."""
    found = [*_settings(a.config, b.config), *_inputs(a, b), *_code(a, b), *_provenance(a, b)]
    return sorted(found, key=lambda difference: get_args(Area).index(difference.area))


def config_diff(a: Side, b: Side) -> list[str]:
    """Return the lines by which the TOML of both differ, marked - and +; none if one is unknown."""
    texts = [None if side.manifest is None else side.manifest.config_text for side in (a, b)]
    then, now = ([] if text is None else text.splitlines() for text in texts)
    if None in texts or then == now:
        return []
    lines = list(difflib.unified_diff(then, now, n=0, lineterm=""))[2:]
    return [line for line in lines if not line.startswith("@@")]


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[RunDifference]:
    for key in dict.fromkeys((*_SETTINGS, *a, *b)):
        then, now = a.get(key), b.get(key)
        if key in _LEFT_OUT or then == now:
            continue
        if key in _TABLES:
            then, now = then or {}, now or {}
            for name in dict.fromkeys((*then, *now)):
                yield from _differing(f"[{key}] {name}", _TABLES[key], then.get(name), now.get(name))
            continue
        area, what = _SETTINGS.get(key, ("question", key))
        if key == "thresholds":  # of functions that both have; the difference of the functions says the rest
            tables = (then or {}, now or {})
            both = tables[0].keys() & tables[1].keys()
            then, now = ({name: value for name, value in table.items() if name in both} for table in tables)
        yield from _differing(what, area, then, now)


def _inputs(a: Side, b: Side) -> Iterator[RunDifference]:
    """Yield the differences of what rollouts depend on, as far as both manifests hold it and no setting says it."""
    if a.manifest is None or b.manifest is None:
        return
    yield from _differing("address", "question", *(side.target.get("base_url") for side in (a.manifest, b.manifest)))
    for key in a.manifest.timeouts.keys() & b.manifest.timeouts.keys() - {"agent_workflow_timeout_s"}:
        yield from _differing(key, "throughput", a.manifest.timeouts[key], b.manifest.timeouts[key])
    then, now = a.manifest.inputs, b.manifest.inputs
    for table in dict.fromkeys((*then, *now)):
        here, there = then.get(table, {}), now.get(table, {})
        if table in _BY_NAME:
            yield from _differing(f"names in [{table}]", "question", sorted(here), sorted(there))
        elif table not in _SAID:
            for key in dict.fromkeys((*here, *there)):
                if (table, key) != ("experiment", "model_path"):
                    yield from _differing(f"[{table}] {key}", "question", here.get(key), there.get(key))


def _code(a: Side, b: Side) -> Iterator[RunDifference]:
    loaded_a, loaded_b = _loaded(a), _loaded(b)
    then, now = loaded_a.get("digests", {}), loaded_b.get("digests", {})
    for name in then:
        if name in now and then[name] != now[name]:
            yield RunDifference(f"code of {name}", "scoring", None, None)
    then, now = loaded_a.get("rollout_code"), loaded_b.get("rollout_code")
    if then and now and then != now:
        files = [path for path in sorted({*then, *now}) if then.get(path) != now.get(path)]
        yield RunDifference(f"code of rollouts ({listed(files, _MOST_FILES)})", "code", None, None)
    commits = [_commit(side) for side in (a, b)]
    if None not in commits:
        yield from _differing("git commit", "code", *commits)


def _loaded(side: Side) -> Event:
    return NOTHING if side.stored is None else side.stored.replayed.loaded


def _commit(side: Side) -> str | None:
    state = side.results.provenance
    if side.manifest is not None and state.get("git_commit") is None:  # it did not end
        state = side.manifest.git or state
    commit = state.get("git_commit")
    return (
        None if commit is None else f"{commit[:_SHORT]}{' with uncommitted changes' if state.get('git_dirty') else ''}"
    )


def _provenance(a: Side, b: Side) -> Iterator[RunDifference]:
    for key, (area, what) in _PROVENANCE.items():
        then, now = a.results.provenance.get(key), b.results.provenance.get(key)
        if then is not None and now is not None:
            short = _SHORT if key == "dataset_sha256" else None
            yield from _differing(what, area, then[:short], now[:short])
    if a.manifest is not None and b.manifest is not None:
        packages = a.manifest.versions.keys() & b.manifest.versions.keys()
        for name in sorted(packages - {"python", "pytest-osmosis"}):
            yield from _differing(name, "versions", a.manifest.versions[name], b.manifest.versions[name])


def _differing(what: str, area: Area, a: Any, b: Any) -> Iterator[RunDifference]:
    if a != b:
        yield RunDifference(what, area, _written(a), _written(b))


def _written(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


# -- any number of eval runs side by side, each compared with the first, as a session compares its evals ---


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
    return [replace(results, among=table) for results in made.values()]


def _read(folder: Path, name: str) -> tuple[str, Results]:
    """Return the name of an eval run, or the path of a results file, and its results."""
    side = read_side("", folder, name)
    if side.stored is None or side.has_ended:
        return side.name, side.results
    has_ended = side.stored.lifecycle.has_ended
    why = "its run did not end; resume it first" if has_ended else "its run has not ended yet"
    return side.name, replace(side.results, stopped=why)
