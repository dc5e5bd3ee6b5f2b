"""The page on one eval run: its head, its rows and its runs in columns.

All numbers are those of `results`, so they are those of results.json where there is one.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct

from pytest_osmosis.addons.viewer.run_lines import circumstances, remarks
from pytest_osmosis.addons.viewer.run_list import row_of
from pytest_osmosis.addons.viewer.shapes import (
    FunctionShape,
    Outcome,
    PassCurve,
    RowColumns,
    RunColumns,
    RunHead,
    RunPage,
    SliceShape,
    SlicesShape,
)
from pytest_osmosis.addons.viewer.stored_results import StoredResults
from pytest_osmosis.config.kinds import dotted, toml
from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.formats.codec import ShapeFault, decode
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.plan import MOST_RUNS, selected_runs
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Boundary, RunRecord
from pytest_osmosis.report.summary import account_lines, verdict_lines
from pytest_osmosis.results.conclude import EvalFacts
from pytest_osmosis.results.results import Results, decided_scores
from pytest_osmosis.stats import RunScore, gaffke
from pytest_osmosis.text.chat_messages import SOLUTION, text_of
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.safe import escaped, one_line
from pytest_osmosis.verdicts.pass_rule import PassRule, error_of

_Group = Callable[[RunRecord], str | None]
"""Returns the value of a run, None if it is in no slice."""


_Judged = tuple[RunRecord, RunScore]
"""A run that counts, and what its model's results say of it."""
OUTCOMES: Sequence[Outcome] = get_args(Outcome)
BOUNDARIES: Sequence[str] = get_args(Boundary)
ERROR_CHARS = 300
EXCERPT_CHARS = 120
_LOOKED_AT_CHARS = 1000
MOST_VALUES = 20


def slices_of(results: Results, dataset: DatasetRows, rows: Sequence[int]) -> list[SlicesShape]:
    """Return the slices by each column of the dataset, and by facts about rollouts that differ. `rows` are all rows."""
    judged = list(decided_scores(results.records, results.pass_rule))
    places = {row: place for place, row in enumerate(rows)}
    found = []
    for column, group in _slice_columns(dataset.groups):
        parts: dict[str, list[_Judged]] = {}
        for each in judged:
            if (value := group(each[0])) is not None:
                parts.setdefault(value, []).append(each)
        if 2 <= len(parts) <= MOST_VALUES:
            slices = [
                _slice(value, parts[value], places, has_rate=not results.is_fragment)
                for value in sorted(parts, key=_order)
            ]
            found.append(SlicesShape(column=column, slices=slices))
    return found


def _slice_columns(groups: Mapping[str, Mapping[int, str]]) -> Iterator[tuple[str, _Group]]:
    for column, values in groups.items():
        yield column, lambda record, values=values: values.get(record.run.row)  # type: ignore[misc]
    yield "finish reason", lambda record: record.finish_reason
    yield "model that answered", lambda record: record.model


def _slice(value: str, runs: Sequence[_Judged], places: Mapping[int, int], *, has_rate: bool) -> SliceShape:
    """Return a slice. Like that of the whole, its rate is left out while runs are missing that could change it."""
    by_row: dict[int, list[float]] = {}
    for record, score in runs:
        by_row.setdefault(record.run.row, []).append(float(score.passed))
    measured, passed = sum(score.measured for _, score in runs), sum(score.passed for _, score in runs)
    has_rate = has_rate and measured > 0
    return SliceShape(
        value=value,
        rows=sorted(places[row] for row in by_row),
        runs=len(runs),
        measured=measured,
        passed=passed,
        pass_rate=passed / len(runs) if has_rate else None,
        pass_rate_interval=gaffke(list(by_row.values())) if has_rate else None,
    )


def _order(value: str) -> tuple[int, float, str]:
    """Return the sort key of a value: numbers by size, before texts."""
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def rerun_command(run: StoredEvalRun) -> list[str] | None:
    """Return the command before and after the name of a run.

    It is None for an eval run whose config is gone or never was, and for one that tests over rollouts requested.
    """
    manifest, config = run.manifest, run.config
    if config is None or not run.config_is_there or manifest.is_of_tests:
        return None
    node = f"{Path(shown(config)).as_posix()}::{manifest.named}["
    after = [f"--osmosis-set={each}" for each in _settings(manifest.typed)]
    if manifest.plan.granularity == "row":
        after.append("--osmosis-granularity=run")
    return [f"pytest {shlex.quote(node)[:-1]}", f"]' {shlex.join(after)}".rstrip()]


def _settings(typed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in typed:
        value = each["value"]
        path = dotted((each["table"], each["key"], *each["below"]))
        yield f"{path}={value if isinstance(value, str) else toml(value)}"


def functions_of(document: Mapping[str, Any], results: Results) -> Iterator[FunctionShape]:
    """Yield the published statistics of each function, of the eval's own model and then of its baseline's."""
    rule = results.pass_rule
    for model, summary in enumerate(document.get("model_summaries", [document["summary"]])):
        published = summary["eval_fns"]
        yield from (
            FunctionShape(
                name=name,
                model=model,
                threshold=rule.threshold(name),
                decides=name in rule.deciding,
                statistics=published[name],
            )
            for name in rule.scorers
            if name in published
        )


def curves_of(results: Results) -> Iterator[PassCurve]:
    """Yield the curves of runs that passed, and then those of each function, for each model.

    There are none for one run a row, and for a part of the plan, whose rates would mislead.
    """
    if results.is_fragment:
        return
    for number, model in enumerate(results.models):
        for function, summary in {"": model.overall, **model.by_function}.items():
            if summary.pass_at:
                hat = {1: summary.pass_at.get(1), **summary.pass_hat}  # pass^1 is pass@1, and not among the statistics
                yield PassCurve(
                    function=function,
                    model=number,
                    k=list(summary.pass_at),
                    pass_at_k=list(summary.pass_at.values()),
                    pass_hat_k=[hat.get(k) for k in summary.pass_at],
                )


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
        rows=RowColumns(index=list(places), prompt=[prompts.get(row, "") for row in places]),
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
    if stored.is_from_journal:
        runs = {*_planned(stored), *stored.replayed.ledger.records}
    else:
        runs = {record.run for record in stored.results.all_records}
    return sorted(runs, key=lambda run: (run.row, run.is_baseline, run.index))


def _planned(stored: StoredResults) -> Iterable[RunId]:
    """Return the runs that the last whole session selected, else those that are planned."""
    facts = stored.replayed.facts
    try:
        selected = decode(facts, EvalFacts).selected
        if sum(n_rows for _, _, _, n_rows in selected) <= MOST_RUNS:
            return set(selected_runs(selected))
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
        cost_usd=[stored.results.costs_usd.get(record.run) for record in records],
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
    boundary = None if record.status == "pending" else rule.boundary(record)
    return -1 if boundary is None else BOUNDARIES.index(boundary)


def _error(record: RunRecord) -> str | None:
    """Return in one line what kept a run, or one of its functions, from a score; None if nothing did."""
    error = record.skip_reason if record.status == "pending" else error_of(record)
    return error and one_line(error, ERROR_CHARS)


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
    manifest, results, document = stored.run.manifest, stored.results, stored.document
    baseline = None if manifest.baseline is None else manifest.baseline.model
    return RunHead(
        row=row_of(stored),
        path=shown(stored.run.directory.path),
        models=[manifest.subject.model, *([] if baseline is None else [baseline])],
        circumstances=_plain(circumstances(stored)),
        remarks=_plain(remarks(stored)),
        verdict=_plain(verdict_lines(results)),
        account=_plain(account_lines(results)),
        functions=list(functions_of(document, results)),
        curves=list(curves_of(results)),
        slices=slices_of(results, dataset, rows),
        no_slices=dataset.problem,
        results=document,
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


# -- the rows, as far as a page shows them: their prompts, and columns with few values ---------------------

LONGEST_VALUE = 60
NO_VALUE = "(none)"
_TEXTS = frozenset({"user_prompt", "system_prompt", "messages", SOLUTION})


class DatasetRows(Struct, frozen=True):
    """The excerpts of prompts by row, and the values of columns that put rows into groups, by column and row.

    `problem` says why the dataset could not be used; "" if it could.
    """

    prompts: Mapping[int, str] = {}
    groups: Mapping[str, Mapping[int, str]] = {}
    problem: str = ""


def dataset_rows(run: StoredEvalRun, rows: Sequence[int]) -> DatasetRows:
    """Read these rows of an eval run's dataset, unless it has changed since and says nothing about the runs."""
    path, manifest = run.dataset, run.manifest
    name = shown(path)
    try:
        dataset = open_dataset(
            path, manifest.columns, name, recorded=bool(manifest.subject.extra.get("recorded", False))
        )
        is_kept = path == run.directory.rows
        if not is_kept and manifest.dataset_sha256 != dataset.digest():
            return DatasetRows(problem=f"{name} has changed since the eval run began")
        return _rows(dataset, rows, is_kept=is_kept)
    except (OsmosisError, IndexError) as error:
        return DatasetRows(problem=" ".join(str(error).split()))


def _rows(dataset: Dataset, rows: Sequence[int], *, is_kept: bool) -> DatasetRows:
    prompts: dict[int, str] = {}
    columns: dict[str, dict[int, str] | None] = {}
    with dataset.open() as file:
        for index in rows:
            row = dataset.read(file, index)
            if row.messages:
                prompts[index] = excerpt(row.messages[-1].get("content"))
            record = row.record
            if is_kept:  # an environment gave the row its columns as metadata
                metadata = record.get("metadata")
                given = metadata if isinstance(metadata, Mapping) else {}
                record = {"ground_truth": record.get("ground_truth"), **given}
            for column, value in _values(record):
                known = columns.setdefault(column, {})
                if known is None:
                    continue
                text = _text(value)
                if text is None:
                    columns[column] = None  # a column of something else
                else:
                    known[index] = text
    groups: dict[str, Mapping[int, str]] = {}
    for column, known in columns.items():
        values = {index: known.get(index, NO_VALUE) for index in rows} if known is not None else {}
        n_values = len({*values.values()})
        if 2 <= n_values <= MOST_VALUES and 2 * n_values <= len(values):  # more than one row each, on average
            groups[column] = values
    return DatasetRows(prompts, groups)


def _values(record: Mapping[str, Any], above: str = "", levels: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield the values of a row by column; those inside an object by "column.key", down to some level."""
    for name, value in record.items():
        column = f"{above}{name}"
        if column in _TEXTS:
            continue
        if isinstance(value, Mapping) and levels > 1:
            yield from _values(value, f"{column}.", levels - 1)
        else:
            yield column, value


def _text(value: object) -> str | None:
    """Return a short value as text, None for what is none."""
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str) and len(value) <= LONGEST_VALUE and "\n" not in value:
        return escaped(value)
    return None


def excerpt(content: object) -> str:
    r"""Return the beginning of a message's content in one line.

    >>> excerpt("What is\n 6 * 7?"), len(excerpt("word " * 100))
    ('What is 6 * 7?', 120)
    """
    text = escaped(" ".join(text_of(content)[:_LOOKED_AT_CHARS].split()))
    return text if len(text) <= EXCERPT_CHARS else f"{text[: EXCERPT_CHARS - 1]}…"
