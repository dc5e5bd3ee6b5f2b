"""The tables of statistics of the summary: mean and pass rate, and with more verbosity all other statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_osmosis.report.columns import fitted_tables
from pytest_osmosis.results.results import Results
from pytest_osmosis.stats import Interval, Summary
from pytest_osmosis.text.numbers import count, score
from pytest_osmosis.text.safe import width

NAME_COLUMNS = 60

Column = tuple[str, Callable[[Summary], str]]


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
    return lines + _verbose_lines(results, list(results.by_function.values()), columns)


def statistics_rows(results: Results) -> list[list[str]]:
    """Return the cells of the first table, head first. A part of the plan has counts in place of rates."""
    if results.is_fragment:
        counts: list[Column] = [("mean", lambda summary: score(summary.mean)), ("passed", _passed)]
        return _rows(results, counts, thresholds=True)
    n = max((k for summary in results.by_function.values() for k in summary.pass_at), default=1)
    columns: list[Column] = [
        ("mean", lambda summary: score(summary.mean)),
        ("95% interval", lambda summary: interval_text(summary.mean_interval)),
        ("pass rate", lambda summary: score(summary.pass_rate)),
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


def _verbose_lines(results: Results, summaries: Sequence[Summary], columns: int | None) -> list[str]:
    spread: list[Column] = [
        ("std", lambda summary: score(summary.std)),
        ("min", lambda summary: score(summary.min)),
        ("p5", lambda summary: score(summary.percentiles.get(5))),
        ("p25", lambda summary: score(summary.percentiles.get(25))),
        ("median", lambda summary: score(summary.median)),
        ("p75", lambda summary: score(summary.percentiles.get(75))),
        ("p95", lambda summary: score(summary.percentiles.get(95))),
        ("max", lambda summary: score(summary.max)),
    ]
    noise: list[Column] = [
        ("standard error", lambda summary: score(summary.se)),
        ("variance within rows", lambda summary: score(summary.within)),
        ("between rows", lambda summary: score(summary.between)),
        ("mixed rows", lambda summary: count(summary.n_mixed)),
    ]
    ks = sorted({k for summary in summaries for k in summary.pass_at})
    lines = []
    for table in (spread, noise, [_pass_at(k) for k in ks], [_pass_hat(k) for k in ks[1:]]):
        if table:
            lines += [
                "",
                *fitted_tables(_rows(results, table), [len(model_names(results)), *(1 for _ in table)], columns),
            ]
    return lines


def _passed(summary: Summary) -> str:
    return f"{count(round((summary.pass_rate or 0.0) * summary.n_runs))} of {count(summary.n_runs)}"


def _pass_at(k: int) -> Column:
    return f"pass@{k}", lambda summary: score(summary.pass_at.get(k))


def _pass_hat(k: int) -> Column:
    return f"pass^{k}", lambda summary: score(summary.pass_hat.get(k))


def _rows(results: Results, columns: Sequence[Column], *, thresholds: bool = False) -> list[list[str]]:
    """Return the cells of each function and model, dashes if it scored no run."""
    baseline, models = results.baseline, model_names(results)
    head = ["model"] if len(models) > 1 else []
    rows = [["eval function", *head, *(["threshold"] if thresholds else []), *(title for title, _ in columns)]]
    for name, own in results.by_function.items():
        threshold = [f">= {results.pass_rule.threshold(name):.12g}"] if thresholds else []
        for model, summary in zip(
            models, (own, *([] if baseline is None else [baseline.by_function[name]])), strict=True
        ):
            cells = [cell(summary) if summary.n_measured else "-" for _, cell in columns]
            rows.append([_tail(name), *([_tail(model)] if head else []), *threshold, *cells])
    return rows


def model_names(results: Results) -> list[str]:
    """Return the name of the model, and that of the baseline's model if there is one, which is not the same."""
    own, baseline = results.description.model, results.baseline
    return [own] if baseline is None else [own, baseline.model + " (baseline)" * (baseline.model == own)]


def _tail(name: str) -> str:
    """Return a name without its beginning if it is longer than `NAME_COLUMNS`."""
    kept = name
    while width(kept) > NAME_COLUMNS - 3 * (kept != name):
        kept = kept[1:]
    return name if kept == name else f"...{kept}"
