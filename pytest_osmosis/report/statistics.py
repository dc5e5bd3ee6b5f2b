"""The tables of the summary: statistics of scores, metrics of user code, and the rows that changed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from pytest_osmosis.formats.events import ROLLOUT
from pytest_osmosis.record.run_directory import RUNS
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.report.style import fitted_tables
from pytest_osmosis.results.results import Results, changed_rows
from pytest_osmosis.results.totals import MetricSummaries
from pytest_osmosis.stats import Interval, Summary
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural, score
from pytest_osmosis.text.safe import escaped, fitted, fitted_middle
from pytest_osmosis.verdicts.comparison import Against, ChangedRow, Passes

NAME_COLUMNS = 60

Column = tuple[str, Callable[[Summary], str]]
MOST_ROWS = 20
ASSUMED = "95% intervals assume only the range of scores: that of a mean near one end reaches far towards the other"


def statistics_lines(results: Results, *, verbose: bool = False, columns: int | None = None) -> list[str]:
    """Return the table of each function's mean and pass rate with intervals; `verbose` adds the spread of scores.

    A table that would be wider than `columns` is split. There is none before the functions are known.
    """
    if not results.by_function:
        return []
    rows = statistics_rows(results)
    names = len(model_names(results))
    together = [names, 3, 2, len(rows[0]) - names - 5]  # each interval stays next to its estimate
    lines = fitted_tables(rows, [names, 3] if results.is_fragment else together, columns)
    if not verbose or results.is_fragment:
        return lines
    return lines + _verbose_lines(results, columns)


def statistics_rows(results: Results) -> list[list[str]]:
    """Return the cells of the first table, head first. A part of the plan has counts in place of rates."""
    if results.is_fragment:
        return _rows(results, [_score("mean"), ("passed", _passed)], thresholds=True)
    n = max((k for summary in results.by_function.values() for k in summary.pass_at), default=1)
    columns: list[Column] = [
        _score("mean"),
        ("95% interval", lambda summary: interval_text(summary.mean_interval)),
        _score("pass_rate", "pass rate"),
        ("95% interval", lambda summary: interval_text(summary.pass_rate_interval)),
    ]
    if n > 1:
        columns += [_pass_at(n), _pass_hat(n)]
    return _rows(results, columns, thresholds=True)


def interval_text(interval: Interval | None, number: Callable[[float], str] = score) -> str:
    """Return an interval, its ends as `number` writes them; "-" for None.

    >>> interval_text(Interval(0.0612, 0.7923, "Gaffke, mid-p"))
    '0.061 to 0.792'
    """
    return "-" if interval is None else f"{number(interval.low)} to {number(interval.high)}"


def _verbose_lines(results: Results, columns: int | None) -> list[str]:
    low, high = ([_percentile(k) for k in ks] for ks in ((5, 25), (75, 95)))
    spread = [_score("std"), _score("min"), *low, _score("median"), *high, _score("max")]
    ks = sorted({k for summary in results.by_function.values() for k in summary.pass_at})
    lines = []
    for table in (spread, [_pass_at(k) for k in ks], [_pass_hat(k) for k in ks[1:]]):
        if table:
            lines += [
                "",
                *fitted_tables(_rows(results, table), [len(model_names(results)), *(1 for _ in table)], columns),
            ]
    graded = any(each.mean_interval != each.pass_rate_interval for each in results.by_function.values())
    return [*lines, "", ASSUMED] if graded else lines


def _passed(summary: Summary) -> str:
    return f"{count(round((summary.pass_rate or 0.0) * summary.n_runs))} of {count(summary.n_runs)}"


def _score(name: str, title: str | None = None) -> Column:
    value = attrgetter(name)
    return title or name, lambda summary: score(value(summary))


def _percentile(k: int) -> Column:
    return f"p{k}", lambda summary: score(summary.percentiles.get(k))


def _pass_at(k: int) -> Column:
    return f"pass@{k}", lambda summary: score(summary.pass_at.get(k))


def _pass_hat(k: int) -> Column:
    return f"pass^{k}", lambda summary: score(summary.pass_hat.get(k))


def _rows(results: Results, columns: Sequence[Column], *, thresholds: bool = False) -> list[list[str]]:
    """Return the cells of each function and model, dashes if it scored no run."""
    models = model_names(results)
    head = ["model"] if len(models) > 1 else []
    rows = [["eval function", *head, *(["threshold"] if thresholds else []), *(title for title, _ in columns)]]
    for name in results.by_function:
        threshold = [f">= {results.pass_rule.threshold(name):.12g}"] if thresholds else []
        summaries = (model.by_function[name] for model in results.models)
        for model, summary in zip(models, summaries, strict=True):
            cells = [cell(summary) if summary.n_measured else "-" for _, cell in columns]
            rows.append(
                [
                    fitted_middle(name, NAME_COLUMNS),
                    *([fitted_middle(model, NAME_COLUMNS)] if head else []),
                    *threshold,
                    *cells,
                ]
            )
    return rows


def model_names(results: Results) -> list[str]:
    """Return the name of the model, and that of the baseline's model if there is one, which is not the same."""
    own, baseline = results.description.model, results.baseline
    return [own] if baseline is None else [own, baseline.model + " (baseline)" * (baseline.model == own)]


def metric_rows(results: Results) -> list[list[str]]:
    """Return the cells of the table, head first; no rows if no run reported a metric."""
    found = [model.metrics(results.pass_rule) for model in results.models]
    models = list(zip(model_names(results), found, strict=True))
    names = {(source, name): None for _, metrics in models for source, named in metrics.items() for name in named}
    if not names:
        return []
    head = ["metric", *(["model"] if len(models) > 1 else []), "mean", "min", "max", "runs"]
    rows = []
    several = len({source for source, _ in names}) > 1
    for source, name in names:
        flat = fitted(escaped(" ".join(name.split())), NAME_COLUMNS)
        title = f"{flat} ({source})" if several and source != ROLLOUT else flat
        for model, metrics in models:
            rows.append([title, *([model] if len(models) > 1 else []), *_metric_cells(metrics, source, name)])
    return [head, *rows]


def metric_lines(results: Results, *, verbose: bool = False, columns: int | None = None) -> list[str]:
    """Return the table as lines, after an empty one; at most `MOST_ROWS` rows unless `verbose`."""
    rows = metric_rows(results)
    if not rows:
        return []
    shown = rows if verbose else rows[: MOST_ROWS + 1]
    more = len(rows) - len(shown)
    left_out = [f"and {plural(more, 'more row')} of metrics: -v, results.json"] if more else []
    return ["", *fitted_tables(shown, [len(shown[0])], columns), *left_out]


def _metric_cells(metrics: MetricSummaries, source: str, name: str) -> list[str]:
    found = metrics.get(source, {}).get(name)
    if found is None:
        return ["-", "-", "-", "0"]
    return [score(found.mean), score(found.min), score(found.max), count(found.runs)]


# -- the rows that pass more or less often than in another eval run, and the commands that show them -------

MOST_NAMED = 10


def show_command(run_dir: Path, run: RunId | None = None) -> str:
    """Return the command that shows the eval run in `run_dir`, which is relative to the current folder, or one run.

    >>> show_command(Path(".osmosis/runs/sums-1"), RunId(3, 1)), show_command(Path(".osmosis/runs/sums-1").absolute())
    ('pytest-osmosis show sums-1 row3-run1', 'pytest-osmosis show sums-1')
    >>> show_command(Path("../my evals/sums-1"), RunId(3, 1))
    "pytest-osmosis show '../my evals/sums-1' row3-run1"
    """
    path = Path(shown(run_dir)) if run_dir.is_absolute() else run_dir
    name = path.name if path.parent == RUNS else str(path)
    if name.startswith("-"):  # not an option
        name = f"./{path}"
    return shlex.join(["pytest-osmosis", "show", name, *([] if run is None else [str(run)])])


def changed_rows_lines(against: Against, results: Results) -> list[str]:
    """Return the first rows that are worse and better, and the command that shows one."""
    changed = changed_rows(results, against)
    return [*named_rows(changed), *_commands(changed[0], results)] if changed else []


def better_and_worse(better: int, worse: int) -> str:
    """Return the numbers of rows that changed.

    >>> better_and_worse(1, 0), better_and_worse(12, 1009)
    ('1 row better, 0 worse', '12 rows better, 1,009 worse')
    """
    if not better + worse:
        return "no row changed"
    return f"{plural(better, 'row')} better, {count(worse)} worse"


def rows_left_out(counts: Mapping[str, int]) -> str:
    """Return the numbers of rows that are not compared, by reasons, "" if all are.

    >>> rows_left_out({"added": 0, "removed": 2}), rows_left_out({"added": 0})
    ('rows left out: 2 removed', '')
    """
    texts = [f"{count(n)} {reason}" for reason, n in counts.items() if n]
    return f"rows left out: {', '.join(texts)}" if texts else ""


def row_name(row: ChangedRow) -> str:
    """Return the name of a row, with its earlier one if it moved.

    >>> from pytest_osmosis.verdicts.comparison import Pair, changed_rows
    >>> pairs = [Pair(3, 3, [True], [False]), Pair(4, 5, [True], [False])]
    >>> list(map(row_name, changed_rows(pairs, "baseline")))
    ['row3', 'row4 (was row5)']
    """
    then = row.earlier_row_index
    return f"row{row.row_index}" + (f" (was row{then})" if then != row.row_index else "")


def passes_text(passes: Passes) -> str:
    return f"{passes.passed}/{passes.measured}"


def named_rows(changed: Sequence[ChangedRow], most: int = MOST_NAMED) -> Iterator[str]:
    """Yield a line on the rows that are worse, and one on those that are better, each with the first `most`.

    Rows of several runs come with how many passed.
    """
    several = any(max(row.new.measured, row.old.measured) > 1 for row in changed)
    for change in ("worse", "better"):
        names = [
            f"{row_name(row)} {passes_text(row.old)} -> {passes_text(row.new)}" if several else row_name(row)
            for row in changed
            if row.change == change
        ]
        if names:
            yield f"  {change}: {listed(names, most)}"


def _commands(row: ChangedRow, results: Results) -> Iterator[str]:
    """Yield the command that shows a run of `row`: one that did not pass if the row is worse, or else one that did."""
    wanted = row.change == "better"
    runs = results.measured_runs().items()
    run = next((run for run, passed in runs if run.row == row.row_index and passed is wanted), None)
    if run is not None and not results.is_merged:
        yield f"  row{row.row_index} now: {show_command(Path(results.provenance['run_dir']), run)}"
