"""The page on one eval run: its head, its rows and its runs in columns.

All numbers are those of `results`, so they are those of results.json where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from pytest_osmosis.files.shapes import ShapeFault
from pytest_osmosis.formats.codec import decode
from pytest_osmosis.record.plan import MOST_RUNS, selected_runs
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Boundary, RunRecord
from pytest_osmosis.report.run_page import circumstances, remarks
from pytest_osmosis.report.summary import account_lines
from pytest_osmosis.report.verdict import verdict_lines
from pytest_osmosis.results.publish import MANY
from pytest_osmosis.results.rebuild import FactsFields
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.pass_rule import PassRule
from pytest_osmosis.viewer.dataset_rows import DatasetRows
from pytest_osmosis.viewer.figures import curves_of, functions_of
from pytest_osmosis.viewer.rerun_command import rerun_command
from pytest_osmosis.viewer.run_row import row_of
from pytest_osmosis.viewer.shapes import (
    GateShape,
    Outcome,
    RowColumns,
    RunColumns,
    RunHead,
    RunPage,
)
from pytest_osmosis.viewer.slices import slices_of

OUTCOMES: Sequence[Outcome] = get_args(Outcome)
BOUNDARIES: Sequence[str] = get_args(Boundary)
ERROR_CHARS = 300


def run_page(
    stored: StoredResults,
    runs: Sequence[RunId],
    prompts: Mapping[int, str],
    dataset: DatasetRows,
) -> RunPage:
    """Return the page of an eval run. `prompts` are by row."""
    places = {row: place for place, row in enumerate(dict.fromkeys(run.row for run in runs))}
    known = {record.run: record for record in stored.records}
    others = stored.replayed.ledger.records
    records = [known.get(run) or others.get(run) or RunRecord(run) for run in runs]
    errors = _Texts(map(_error, records))
    finish_reasons = _Texts(record.finish_reason for record in records)
    return RunPage(
        head=_head(stored, dataset, list(places), errors.all, finish_reasons.all),
        rows=RowColumns(
            index=list(places),
            prompt=[prompts.get(row, "") for row in places],
        ),
        runs=_columns(stored, records, places, errors.places, finish_reasons.places),
    )


class _Texts:
    """Texts that many runs share: each once in `all`, and the `places` of the runs' own, -1 for None."""

    def __init__(self, texts: Iterable[str | None]) -> None:
        known: dict[str | None, int] = {None: -1}
        self.places = [known.setdefault(text, len(known) - 1) for text in texts]
        self.all = [text for text in known if text is not None]


# -- runs --------------------------------------------------------------------------------------------------


def runs_of(stored: StoredResults) -> list[RunId]:
    """Return the runs of an eval run, by row, then model, then index: the selected ones, whether they ended or not."""
    return sorted(_runs(stored), key=lambda run: (run.row, run.is_baseline, run.index))


def _runs(stored: StoredResults) -> set[RunId]:
    if not stored.is_from_journal:
        return {record.run for record in stored.results.all_records}
    return {*_planned(stored), *stored.replayed.ledger.records}


def _planned(stored: StoredResults) -> Iterable[RunId]:
    """Return the runs that the last whole session selected, else those that are planned."""
    facts = stored.replayed.facts
    try:
        decode(facts, FactsFields)
        if sum(n_rows for _, _, _, n_rows in facts["selected"]) <= MOST_RUNS:
            return set(selected_runs(facts["selected"]))
    except (ShapeFault, ValueError, TypeError):  # a damaged journal, or no code was loaded
        pass
    return stored.run.manifest.selected.runs()


def _columns(
    stored: StoredResults,
    records: Sequence[RunRecord],
    rows: Mapping[int, int],
    errors: Sequence[int],
    finish_reasons: Sequence[int],
) -> RunColumns:
    """Return runs in columns. `rows` are the places of rows by their index."""
    rule = stored.results.pass_rule
    ledger, is_running = stored.replayed.ledger, stored.status == "running"
    finished = [record.scores if record.status == "finished" else {} for record in records]
    return RunColumns(
        row=[rows[record.run.row] for record in records],
        run=[record.run.index for record in records],
        model=[int(record.run.is_baseline) for record in records],
        outcome=[OUTCOMES.index(_outcome(record, rule, is_running and ledger.in_flight(record))) for record in records],
        boundary=[_boundary(record, rule) for record in records],
        error=errors,
        scores={name: [scores.get(name) for scores in finished] for name in rule.scorers},
        metrics=_metrics(records),
        duration_ms=[record.duration_ms if record.rolled else None for record in records],
        tokens=[record.tokens for record in records],
        cost_usd=[stored.costs_usd.get(record.run) for record in records],
        turns=[record.turns for record in records],
        finish_reason=finish_reasons,
        chunk=[],
        line=[],
    )


def _outcome(record: RunRecord, rule: PassRule, is_in_flight: bool) -> Outcome:
    if record.status == "pending":
        return "running" if is_in_flight else "pending"
    if record.status == "skipped":
        return "removed"
    if not rule.measured(record):
        return "unmeasured"
    return "passed" if rule.passed(record) else "failed"


def _boundary(record: RunRecord, rule: PassRule) -> int:
    if record.status == "pending":
        return -1
    boundary = rule.boundary(record)
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


def _head(
    stored: StoredResults,
    dataset: DatasetRows,
    rows: Sequence[int],
    errors: Sequence[str],
    finish_reasons: Sequence[str],
) -> RunHead:
    manifest, results = stored.run.manifest, stored.results
    baseline = None if manifest.baseline is None else manifest.baseline.model
    return RunHead(
        row=row_of(stored),
        path=shown(stored.run.directory.path),
        models=[manifest.subject.model, *([] if baseline is None else [baseline])],
        decide=results.pass_rule.decide,
        circumstances=_plain(circumstances(stored)),
        remarks=_plain(remarks(stored)),
        verdict=_plain(verdict_lines(results)),
        account=_plain(account_lines(results)),
        gates=[GateShape(gate=gate["gate"], state=gate["state"]) for gate in stored.document["gates"]],
        functions=list(functions_of(stored.document, results)),
        curves=list(curves_of(results)),
        slices=slices_of(results, dataset, rows),
        no_slices=dataset.problem,
        results={key: each for key, each in stored.document.items() if key not in MANY},
        outcomes=OUTCOMES,
        boundaries=BOUNDARIES,
        errors=errors,
        finish_reasons=finish_reasons,
        rerun=rerun_command(stored.run),
        html_conversations="all",
    )


def _plain(lines: Iterable[str]) -> list[str]:
    """Return lines without their styles."""
    return [str.__str__(line) for line in lines]
