"""The page on one eval run: its head, its rows and its runs in columns.

All numbers are those of `results`, so they are those of results.json where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from pytest_osmosis.files.shapes import ShapeFault
from pytest_osmosis.record.plan import MOST_RUNS, selected_runs
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Boundary, RunRecord
from pytest_osmosis.report.run_page import circumstances, remarks
from pytest_osmosis.report.summary import account_lines
from pytest_osmosis.report.verdict import verdict_lines
from pytest_osmosis.results.publish import MANY
from pytest_osmosis.results.rebuild import FACTS
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.pass_rule import UNMEASURED, PassRule
from pytest_osmosis.viewer.figures import curves_of, functions_of
from pytest_osmosis.viewer.rerun_command import rerun_command
from pytest_osmosis.viewer.run_row import row_of
from pytest_osmosis.viewer.shapes import (
    GateShape,
    Outcome,
    RowColumns,
    RunColumns,
    RunHead,
    SlicesShape,
)

OUTCOMES: Sequence[Outcome] = get_args(Outcome)
BOUNDARIES: Sequence[str] = get_args(Boundary)
ERROR_CHARS = 300
NO_THRESHOLDS = "the manifest, which an earlier version wrote, holds no thresholds: nothing is known about what passed"


@dataclass(slots=True)
class Texts:
    """Texts that many runs share, each once. Positions stay as they are while an eval run goes on."""

    all: list[str] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)

    def place(self, text: str | None) -> int:
        """Return the position of a text, -1 for None."""
        if text is None:
            return -1
        if text not in self._places:
            self._places[text] = len(self.all)
            self.all.append(text)
        return self._places[text]


@dataclass(frozen=True, slots=True)
class SharedTexts:
    """The errors and the finish reasons of an eval run."""

    errors: Texts = field(default_factory=Texts)
    finish_reasons: Texts = field(default_factory=Texts)


@dataclass(frozen=True, slots=True)
class Slices:
    """The slices of an eval run, or the reason why there are none of its dataset."""

    slices: Sequence[SlicesShape] = ()
    none: str = ""


# -- runs --------------------------------------------------------------------------------------------------


def runs_of(stored: StoredResults) -> list[RunId]:
    """Return the runs of an eval run, by row, then model, then index: the selected ones, whether they ended or not."""
    return sorted(_runs(stored), key=lambda run: (run.row, run.is_baseline, run.index))


def _runs(stored: StoredResults) -> set[RunId]:
    if not stored.is_from_journal and stored.results is not None:
        return {record.run for record in stored.results.all_records}
    return {*_planned(stored), *stored.replayed.ledger.records}


def _planned(stored: StoredResults) -> Iterable[RunId]:
    """Return the runs that the last whole session selected, else those that are planned."""
    facts = stored.replayed.facts
    try:
        FACTS(facts)
        if sum(n_rows for _, _, _, n_rows in facts["selected"]) <= MOST_RUNS:
            return set(selected_runs(facts["selected"]))
    except (ShapeFault, ValueError, TypeError):  # a damaged journal; an earlier version wrote no facts
        pass
    return stored.run.manifest.selected.runs()


def rows_of(runs: Sequence[RunId], digests: Mapping[int, str], prompts: Mapping[int, str]) -> RowColumns:
    """Return the rows of runs."""
    rows = list(dict.fromkeys(run.row for run in runs))
    return RowColumns(
        index=rows,
        digest=[digests.get(row, "") for row in rows],
        prompt=[prompts.get(row, "") for row in rows],
    )


def columns_of(
    stored: StoredResults, runs: Sequence[RunId], rows: Sequence[int], texts: SharedTexts, begun: Collection[RunId]
) -> RunColumns:
    """Return runs in columns. `rows` are the indices of all rows; `begun` are runs of the last session."""
    places = {row: place for place, row in enumerate(rows)}
    known = {record.run: record for record in stored.records}
    others = stored.replayed.ledger.records
    rule = None if stored.results is None else stored.results.pass_rule
    in_flight = begun if stored.status == "running" else set()
    records = [known.get(run) or others.get(run) or RunRecord(run) for run in runs]
    finished = [record.scores if record.status == "finished" else {} for record in records]
    return RunColumns(
        row=[places[run.row] for run in runs],
        run=[run.index for run in runs],
        model=[int(run.is_baseline) for run in runs],
        outcome=[OUTCOMES.index(_outcome(record, rule, record.run in in_flight)) for record in records],
        boundary=[_boundary(record, rule) for record in records],
        error=[texts.errors.place(_error(record)) for record in records],
        scores={name: [scores.get(name) for scores in finished] for name in _functions(stored)},
        metrics=_metrics(records),
        duration_ms=[record.duration_ms if record.rolled else None for record in records],
        tokens=[record.tokens for record in records],
        cost_usd=[stored.costs_usd.get(run) for run in runs],
        turns=[record.turns for record in records],
        finish_reason=[texts.finish_reasons.place(record.finish_reason) for record in records],
        chunk=[],
        line=[],
    )


def _functions(stored: StoredResults) -> Sequence[str]:
    return stored.replayed.ledger.scorers if stored.results is None else stored.results.pass_rule.scorers


def _outcome(record: RunRecord, rule: PassRule | None, is_in_flight: bool) -> Outcome:
    """Return the outcome of a run. Without thresholds nothing is known about what a score means."""
    if record.status == "pending":
        return "running" if is_in_flight else "pending"
    if record.status == "skipped":
        return "removed"
    if rule is None:
        return "unmeasured" if record.status == "finished" or record.boundary in UNMEASURED else "failed"
    if not rule.measured(record):
        return "unmeasured"
    return "passed" if rule.passed(record) else "failed"


def _boundary(record: RunRecord, rule: PassRule | None) -> int:
    if record.status == "pending":
        return -1
    boundary = record.boundary if rule is None else rule.boundary(record)
    return -1 if boundary is None else BOUNDARIES.index(boundary)


def _error(record: RunRecord) -> str | None:
    """Return in one line what kept a run, or one of its functions, from a score; None if nothing did."""
    if record.status == "pending":
        return record.skip_reason and one_line(record.skip_reason, ERROR_CHARS)
    if record.error is not None:
        return one_line(record.error, ERROR_CHARS)
    if not record.scorer_errors:
        return None
    errors = (f"{name}: {error.message}" for name, error in record.scorer_errors.items())
    return one_line("; ".join(errors), ERROR_CHARS)


def _metrics(records: Sequence[RunRecord]) -> dict[str, list[float | None]]:
    """Return the metrics of runs by "source: name", in the order in which they first appear."""
    columns: dict[str, list[float | None]] = {}
    for place, record in enumerate(records):
        for source, named in record.metrics.items():
            for name, value in named.items():
                key = f"{source}: {name}"
                if key not in columns:
                    columns[key] = [None] * len(records)
                columns[key][place] = value
    return columns


# -- the head ----------------------------------------------------------------------------------------------


def head_of(stored: StoredResults, texts: SharedTexts, slices: Slices, html_conversations: str = "all") -> RunHead:
    """Return the head of an eval run's page."""
    manifest, results = stored.run.manifest, stored.results
    baseline = None if manifest.baseline is None else manifest.baseline.model
    return RunHead(
        row=row_of(stored),
        path=shown(stored.run.directory.path),
        models=[manifest.subject.model, *([] if baseline is None else [baseline])],
        decide=results.pass_rule.decide if results is not None else (manifest.pass_rule or {}).get("decide", "all"),
        circumstances=_plain(circumstances(stored)),
        remarks=_plain(remarks(stored)),
        verdict=[NO_THRESHOLDS] if results is None else _plain(verdict_lines(results)),
        account=[] if results is None else _plain(account_lines(results)),
        gates=[GateShape(gate=gate["gate"], state=gate["state"]) for gate in stored.document.get("gates", ())],
        functions=[] if results is None else list(functions_of(stored.document, results)),
        curves=[] if results is None else list(curves_of(results)),
        slices=slices.slices,
        no_slices=slices.none,
        results=None if results is None else {key: each for key, each in stored.document.items() if key not in MANY},
        outcomes=OUTCOMES,
        boundaries=BOUNDARIES,
        errors=list(texts.errors.all),
        finish_reasons=list(texts.finish_reasons.all),
        rerun=rerun_command(stored.run),
        html_conversations=html_conversations,
    )


def _plain(lines: Iterable[str]) -> list[str]:
    """Return lines without their styles."""
    return [str.__str__(line) for line in lines]
