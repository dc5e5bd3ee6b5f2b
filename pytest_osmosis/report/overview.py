"""The table of several evals, and the line on all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.columns import fitted_tables, table_width
from pytest_osmosis.report.statistics import interval_text
from pytest_osmosis.report.style import bad, dim, good, joined, separated, warning
from pytest_osmosis.results.results import ModelResults, Results
from pytest_osmosis.stats import Summary
from pytest_osmosis.text.numbers import count, money, plural, score, seconds
from pytest_osmosis.text.safe import fitted_middle, width
from pytest_osmosis.verdicts.gates import State, Verdict

HEAD = ("eval", "model", "pass rate (95% interval)", "mean", "gate", "cost", "time")
MODEL = HEAD.index("model")
NAMES: tuple[int, ...] = (HEAD.index("eval"), MODEL)
"""The columns that hold names, which may be shortened."""
WORDS: tuple[int, ...] = (*NAMES, HEAD.index("gate"))
"""The columns that are aligned to the left."""
LEAST_NAME = 8
"""Names are not shortened to fewer columns of the terminal."""
NAME_OF_A_PART = 20
"""The columns of names in a table that does not fit even so and is split."""
WORST_FIRST: Mapping[State, int] = {"fails": 0, "not measured": 1, "partial": 2, "not decided": 2, "holds": 3}
"""The order in which states of gates speak for their eval."""


def overview_lines(evals: Sequence[Results], columns: int | None = None) -> list[str]:
    """Return the table and the line on all evals, for a terminal with this many `columns`.

    If the table is too wide, a model that all evals share is named below it only, and names lose their middles.
    """
    rows, names, words = overview_rows(evals), NAMES, WORDS
    models, model = {row[MODEL] for row in rows[1:]}, None
    if columns is not None and table_width(rows) > columns and len(models) == 1:
        model = models.pop()
        rows = [[*row[:MODEL], *row[MODEL + 1 :]] for row in rows]
        names, words = names[:1], tuple(column - (column > MODEL) for column in words if column != MODEL)
    tables = fitted_tables(_with_short_names(rows, names, columns), [1] * len(rows[0]), columns, left=words)
    return [*tables, *footnotes(evals), "", total_line(evals, model)]


def overview_rows(evals: Sequence[Results]) -> list[list[str]]:
    """Return the cells of the table, head first: a row for each eval, and one for the model of its baseline."""
    named = [(results.description.name, str(results.description.extra.get("path", ""))) for results in evals]
    rows = [list(HEAD)]
    for name, results in zip(distinct_names(named), evals, strict=True):
        rows.append(_own_row(f"{name} (replayed)" if results.is_replay else name, results))
        if results.baseline is not None:
            rows.append(_baseline_row(results, results.baseline))
    return rows


def footnotes(evals: Sequence[Results]) -> list[str]:
    """Return what the marks in the table mean, nothing if there are none."""
    overalls = [model.overall for results in evals for model in (results, results.baseline) if model is not None]
    if not any(_n_unmeasured(overall) and overall.n_measured for overall in overalls):
        return []
    return [warning(f"{MARK} counts runs that were not measured as not passed")]


def distinct_names(named: Sequence[tuple[str, str]]) -> list[str]:
    """Return the name of each eval, with its path if another has the same name.

    >>> distinct_names([("x", "a/x.toml"), ("y", "a/y.toml"), ("x", "b/x.toml")])
    ['x (a/x.toml)', 'y', 'x (b/x.toml)']
    """
    times = Counter(name for name, _ in named)
    return [name if times[name] == 1 else f"{name} ({path})" for name, path in named]


def total_line(evals: Sequence[Results], model: str | None = None) -> str:
    """Return the number of evals by their gates, and the runs, the cost and the time of all; `model` made all runs."""
    passed, n_runs = sum(results.passed for results in evals), sum(results.overall.n_runs for results in evals)
    unmeasured = sum(_n_unmeasured(results.overall) for results in evals)
    records = [record for results in evals for record in results.all_records]
    costs = [results.cost_usd for results in evals if results.cost_usd is not None]
    cost = _cost(records, sum(costs) if costs else None, sum(results.n_cost_unknown for results in evals))
    spent = [
        "cost unknown" if cost == "unknown" else cost,
        seconds(sum(results.duration_ms for results in evals) / 1000),
    ]
    runs = [f"; {count(passed)} of {plural(n_runs, 'run')} passed"]
    if unmeasured:
        runs += [", ", warning(f"{count(unmeasured)} not measured")]
    if missing := sum(results.count("pending") for results in evals if not results.decided):
        runs += [", ", warning(f"{count(missing)} did not run")]
    head = plural(len(evals), "eval") + (f" of {model}" if model is not None else "")
    return joined(head, *_by_state(evals), *runs, dim(f"; {', '.join(spent)}"))


def _by_state(evals: Sequence[Results]) -> list[str]:
    """Return the number of evals in each state, after a colon; nothing if no eval has a gate."""
    worst = [_worst(results.verdicts) for results in evals]
    if not any(worst):
        return []
    times = Counter("not decided" if state == "partial" else state for state in worst)
    parts = [
        *([bad(f"{times['fails']} {'fails' if times['fails'] == 1 else 'fail'}")] if times["fails"] else []),
        *([warning(f"{times['not measured']} not measured")] if times["not measured"] else []),
        *([f"{times['not decided']} not decided"] if times["not decided"] else []),
        *([good(f"{times['holds']} {'holds' if times['holds'] == 1 else 'hold'}")] if times["holds"] else []),
        *([f"{times[None]} without a gate"] if times[None] else []),
    ]
    return [": ", separated(", ", parts)]


def _own_row(name: str, results: Results) -> list[str]:
    return [
        name,
        results.description.model,
        *_estimates(results, results.records, results.by_function, results.overall),
        _gate(results.verdicts),
        dim(_cost(results.records, *_known(results, results.records))),
        dim(seconds(results.duration_ms / 1000) if results.duration_ms else "-"),
    ]


def _baseline_row(results: Results, baseline: ModelResults) -> list[str]:
    return [
        "  baseline",
        baseline.model,
        *_estimates(results, baseline.records, baseline.by_function, baseline.overall),
        "-",
        dim(_cost(baseline.records, *_known(results, baseline.records))),
        "",
    ]


def _estimates(
    results: Results, records: Sequence[RunRecord], by_function: Mapping[str, Summary], overall: Summary
) -> tuple[str, str]:
    """Return the pass rate and the mean; counts and no mean if not every planned run ran, for they would mislead."""
    if not overall.n_runs:
        return (warning("never ran") if any(record.status == "pending" for record in records) else "no run"), "-"
    if not overall.n_measured:
        return warning("not measured"), "-"
    if results.partial or any(record.status == "pending" for record in records):
        passed = sum(map(results.pass_rule.passed, records))
        aside = "smoke" if results.smoke_of is not None else f"{count(results.n_planned)} planned"
        return joined(f"{count(passed)} of {count(overall.n_runs)} passed ", warning(f"({aside})")), "-"
    deciding = results.pass_rule.deciding
    mean = score(by_function[deciding[0]].mean) if len(deciding) == 1 else "-"
    mark = warning(MARK) if _n_unmeasured(overall) else ""
    return joined(mark, score(overall.pass_rate), dim(f" ({interval_text(overall.pass_rate_interval)})")), mean


def _gate(verdicts: Sequence[Verdict]) -> str:
    """Return the worst state of an eval's gates, and of how many, "-" without a gate."""
    worst = _worst(verdicts)
    if worst is None:
        return "-"
    n = sum(verdict.state == worst for verdict in verdicts)
    some = "" if n == len(verdicts) else f" {n}/{len(verdicts)}"
    match worst:
        case "holds":
            return good("HOLDS")
        case "fails":
            return joined(bad("FAILS"), some)
        case "not measured":
            return joined(warning("NOT MEASURED"), some)
    return f"not decided{some}"


def _worst(verdicts: Sequence[Verdict]) -> State | None:
    return min((verdict.state for verdict in verdicts), key=WORST_FIRST.__getitem__, default=None)


def _n_unmeasured(overall: Summary) -> int:
    return overall.n_runs - overall.n_measured


MARK = "*"
"""Marks a pass rate that counts runs which were not measured."""


def _known(results: Results, records: Sequence[RunRecord]) -> tuple[float | None, int]:
    """Return the known cost of records, and the number of rollouts whose cost is unknown."""
    return results.cost_of(records), sum(record.rolled and record.run not in results.costs_usd for record in records)


def _cost(records: Sequence[RunRecord], usd: float | None, n_unknown: int) -> str:
    if not any(record.rolled for record in records):
        return "$0"
    if usd is None or (usd == 0 and n_unknown):
        return "unknown"
    return f">= {money(usd)}" if n_unknown else money(usd)


def _with_short_names(rows: Sequence[Sequence[str]], names: Sequence[int], columns: int | None) -> list[list[str]]:
    """Return the rows with shorter names, the longest column first, if the table would be wider than `columns`."""
    widths = [max(width(row[column]) for row in rows) for column in names]
    over = 0 if columns is None else table_width(rows) - columns
    while over > 0 and max(widths) > LEAST_NAME:
        widths[widths.index(max(widths))] -= 1
        over -= 1
    if over > 0:  # the table is split, which leaves room for names
        widths = [NAME_OF_A_PART] * len(names)
    return [[*map(fitted_middle, row, widths), *row[len(names) :]] for row in rows]
