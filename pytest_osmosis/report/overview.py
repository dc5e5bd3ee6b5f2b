"""The table of several evals, and the line on all of them.

Evals that are entries of one config are compared with the first of them, in columns of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from os.path import commonprefix

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.statistics import interval_text
from pytest_osmosis.report.style import (
    StyledText,
    bad,
    dim,
    fitted_tables,
    good,
    joined,
    separated,
    table_width,
    warning,
)
from pytest_osmosis.report.summary import STATES
from pytest_osmosis.results.entry_table import EntryTable
from pytest_osmosis.results.results import ModelResults, Results, n_cost_unknown
from pytest_osmosis.stats import Summary
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.numbers import count, difference, money, p_value, plural, score, seconds
from pytest_osmosis.text.safe import fitted_middle, one_line
from pytest_osmosis.verdicts.gates import UNDECIDED, State, Verdict

HEAD = ("eval", "model", "pass rate (95% interval)", "mean", "gate", "cost", "time")
RUNS = "runs"
DIFFERENCE = ("to the first (95% interval)", "p")
"""The columns of entries, which come after the model and after the mean."""
MODEL, MEAN = HEAD.index("model"), HEAD.index("mean")
LEFT = ("eval", "model", "gate")
"""The columns that are aligned to the left."""
NAME_COLUMNS = 20
"""The columns of the terminal to which names are shortened in a table that is too wide."""
WORST_FIRST: Mapping[State, int] = {"fails": 0, "not measured": 1, "partial": 2, "not decided": 2, "holds": 3}
"""The order in which states of gates speak for their eval."""


def overview_lines(evals: Sequence[Results], columns: int | None = None) -> list[str]:
    """Return the table and the line on all evals, for a terminal with this many `columns`.

    If the table is too wide, a model that all evals share is named below it only, and names lose their middles.
    """
    rows = overview_rows(evals)
    models, model = {row[MODEL] for row in rows[1:]}, None
    if columns is not None and table_width(rows) > columns and len(models) == 1:
        model = models.pop()
        rows = [[*row[:MODEL], *row[MODEL + 1 :]] for row in rows]
    words = [column for column, title in enumerate(rows[0]) if title in LEFT]
    together = [
        2 if title in (DIFFERENCE[0], "cost") else 1 for title in rows[0] if title not in (DIFFERENCE[1], "time")
    ]
    named = _with_short_names(rows, 2 if model is None else 1, columns)
    tables = fitted_tables(named, together, columns, left=words)
    return [*tables, *footnotes(evals), "", total_line(evals, model)]


def overview_rows(evals: Sequence[Results]) -> list[list[str]]:
    """Return the cells of the table, head first: a row for each eval, and one for the model of its baseline."""
    named = [(results.description.name, str(results.description.extra.get("path", ""))) for results in evals]
    several = any(results.among is not None for results in evals)
    rows = [_with_entry(HEAD, RUNS, DIFFERENCE) if several else list(HEAD)]
    for name, results in zip(distinct_names(named), evals, strict=True):
        own, *others = results.models
        took = seconds(results.duration_ms / 1000) if results.duration_ms else "-"
        row = _row(f"{name} (replayed)" if results.is_replay else name, results, own, _gate(results.verdicts), took)
        rows.append(_with_entry(row, *_entry_cells(results)) if several else row)
        for other in others:
            row = _row(BASELINE, results, other, "-", "")
            rows.append(_with_entry(row, count(other.overall.n_runs), ("", "")) if several else row)
    if several and all(row[-3] == "-" for row in rows[1:]):  # without a gate, the column is left out
        rows = [[*row[:-3], *row[-2:]] for row in rows]
    return rows


def footnotes(evals: Sequence[Results]) -> list[str]:
    """Return what the marks in the table mean, and what entries are compared with; nothing if there are none."""
    overalls = [model.overall for results in evals for model in results.models]
    notes: list[str] = []
    if any(_n_unmeasured(overall) and overall.n_measured for overall in overalls):
        notes.append(warning(f"{MARK} counts runs that were not measured as not passed"))
    tables = _tables(evals)
    for table in tables:
        notes += entry_notes(table, f"{table.config}: " if len(tables) > 1 else "")
    return notes


def _tables(evals: Sequence[Results]) -> Collection[EntryTable]:
    """Return the table of each config whose entries ran together."""
    return {results.among.config: results.among for results in evals if results.among is not None}.values()


def entry_notes(table: EntryTable, begin: str) -> Iterator[str]:
    """Yield how the entries of a config were compared, and why some of them were not."""
    paired = [found for found in table.differences if found.paired]
    unpaired = [found for found in table.differences if not found.paired]
    if table.compared:
        rows = f", over the {_numbers(found.rows for found in paired)} that both measured" if paired else ""
        holm = f"; p by Holm's method for {plural(table.compared, 'comparison')}" if table.compared > 1 else ""
        yield dim(f"{begin}compared with {table.first}{rows}{holm}")
    if unpaired:
        rows, first = _numbers(found.rows for found in unpaired), plural(unpaired[0].first_rows, "row")
        yield warning(f"{begin}{OTHER_ROWS} not paired: {rows} that are not the {first} of {table.first}")
    if (least := table.least_p) is not None:
        rows = _numbers(found.rows for found in paired)
        yield warning(f"{begin}{rows} cannot show a difference: p is at least {least:.2g}, whatever the rows are")
    reasons: dict[str, list[str]] = {}
    for entry in table.entries:
        if entry.reason is not None:
            reasons.setdefault(entry.reason, []).append(entry.name)
    for reason, names in reasons.items():
        yield warning(f"{begin}{listed(names, MOST_LISTED)}: not compared: {one_line(reason)}")


def _numbers(rows: Iterable[int]) -> str:
    """Return the smallest and the largest number of rows.

    >>> _numbers([20, 20]), _numbers([1, 20])
    ('20 rows', '1 to 20 rows')
    """
    numbers = sorted(rows)
    return (
        plural(numbers[-1], "row")
        if numbers[0] == numbers[-1]
        else f"{count(numbers[0])} to {plural(numbers[-1], 'row')}"
    )


def _with_entry(row: Sequence[str], runs: str, found: Sequence[str]) -> list[str]:
    return [*row[: MODEL + 1], runs, *row[MODEL + 1 : MEAN + 1], *found, *row[MEAN + 1 :]]


def _entry_cells(results: Results) -> tuple[str, tuple[str, str]]:
    """Return the cells of an eval that only entries have: its runs, its difference to the first one, and p."""
    runs = count(results.overall.n_runs)
    table, name = results.among, results.description.name
    figures = None if table is None else table.of(name)
    found = None if figures is None else figures.difference
    if found is None:
        return runs, ("first" if table is not None and name == table.first else "-", "-")
    style = {"better": good, "worse": bad}.get(found.meaning, str)
    mark = "" if found.paired else warning(OTHER_ROWS)
    interval = f" ({interval_text(found.interval, difference)})"
    return runs, (
        joined(mark, style(difference(found.difference)), dim(interval)),
        p_value(found.p_adjusted).lstrip("= "),
    )


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
    cost = _cost(records, sum(costs) if costs else None, sum(map(n_cost_unknown, evals)))
    spent = ["cost unknown" if cost == "unknown" else cost, seconds(_duration_ms(evals) / 1000)]
    missing = sum(results.count("pending") for results in evals if not results.decided)
    runs = [f"; {count(passed)} of {plural(n_runs, 'run')} passed"]
    if unmeasured:
        runs += [", ", warning(f"{count(unmeasured)} not measured")]
    if missing:
        runs += [", ", warning(f"{count(missing)} did not run")]
    if missing and not n_runs:
        runs = ["; ", warning(f"none of {plural(missing, 'run')} finished")]
    head = plural(len(evals), "eval") + (f" of {model}" if model is not None else "")
    return joined(head, *_by_state(evals), *runs, dim(f"; {', '.join(spent)}"))


def _duration_ms(evals: Sequence[Results]) -> float:
    """Return the time of all, in which evals that ran together count once."""
    alone = [results.duration_ms for results in evals if results.among is None]
    together = [
        sum(entry.duration_ms for entry in table.entries) if table.duration_ms is None else table.duration_ms
        for table in _tables(evals)
    ]
    return sum(alone) + sum(together)


def _by_state(evals: Sequence[Results]) -> list[str]:
    """Return the number of evals in each state, after a colon; nothing if no eval has a gate."""
    worst = [_worst(results.verdicts) for results in evals]
    if not any(worst):
        return []
    times: Counter[State | None] = Counter("not decided" if state == "partial" else state for state in worst)
    parts: list[tuple[State | None, Callable[[str], str], str]] = [
        ("fails", bad, "fails" if times["fails"] == 1 else "fail"),
        ("not measured", warning, "not measured"),
        ("not decided", str, "not decided"),
        ("holds", good, "holds" if times["holds"] == 1 else "hold"),
        (None, str, "without a gate"),
    ]
    return [": ", separated(", ", [style(f"{times[state]} {text}") for state, style, text in parts if times[state]])]


def _row(name: str, results: Results, model: ModelResults, gate: str, took: str) -> list[str]:
    records = model.records
    cost = _cost(records, results.cost_of(records), n_cost_unknown(results, records))
    return [name, model.model, *_estimates(results, model), gate, dim(cost), dim(took)]


def _estimates(results: Results, model: ModelResults) -> tuple[str, str]:
    """Return the pass rate and the mean; counts and no mean if not every planned run ran, for they would mislead."""
    records, overall = model.records, model.overall
    if not overall.n_runs:
        return (warning("never ran") if any(record.status == "pending" for record in records) else "no run"), "-"
    if not overall.n_measured:
        return warning("not measured"), "-"
    if results.partial or any(record.status == "pending" for record in records):
        passed = sum(map(results.pass_rule.passed, records))
        aside = "smoke" if results.smoke_of is not None else f"{count(results.n_planned)} planned"
        return joined(f"{count(passed)} of {count(overall.n_runs)} passed ", warning(f"({aside})")), "-"
    deciding = results.pass_rule.deciding
    mean = score(model.by_function[deciding[0]].mean) if len(deciding) == 1 else "-"
    mark = warning(MARK) if _n_unmeasured(overall) else ""
    return joined(mark, score(overall.pass_rate), dim(f" ({interval_text(overall.pass_rate_interval)})")), mean


def _gate(verdicts: Sequence[Verdict]) -> str:
    """Return the worst state of an eval's gates, and of how many, "-" without a gate."""
    worst = _worst(verdicts)
    if worst is None:
        return "-"
    n = sum(verdict.state == worst for verdict in verdicts)
    some = "" if n == len(verdicts) else f" {n}/{len(verdicts)}"
    return joined("not decided" if worst in UNDECIDED else StyledText((worst.upper(), STATES[worst])), some)


def _worst(verdicts: Sequence[Verdict]) -> State | None:
    return min((verdict.state for verdict in verdicts), key=WORST_FIRST.__getitem__, default=None)


def _n_unmeasured(overall: Summary) -> int:
    return overall.n_runs - overall.n_measured


MARK = "*"
"""Marks a pass rate that counts runs which were not measured."""
BASELINE = "  baseline"
OTHER_ROWS = "~"
"""Marks the difference of an entry whose rows are not those of the first."""
MOST_LISTED = 5


def _cost(records: Sequence[RunRecord], usd: float | None, n_unknown: int) -> str:
    if not any(record.rolled for record in records):
        return "$0"
    if usd is None or (usd == 0 and n_unknown):
        return "unknown"
    return f">= {money(usd)}" if n_unknown else money(usd)


def _with_short_names(rows: Sequence[Sequence[str]], n_names: int, columns: int | None) -> Sequence[Sequence[str]]:
    """Return the rows with shorter names in their first columns, if the table would be wider than `columns`.

    Those of a sweep lose their common beginning. Then all lose their middles, but no two evals get the same name.
    """
    if columns is None or table_width(rows) <= columns:
        return rows
    shared = len(commonprefix([row[0] for row in rows[1:]]).rpartition(",")[0])  # noqa: RUF071 (no paths)
    rows = [rows[0], *([row[0][shared:], *row[1:]] for row in rows[1:])]
    most, evals = NAME_COLUMNS, {row[0] for row in rows}
    while len({fitted_middle(name, most) for name in evals}) < len(evals):
        most += 1
    return [[*(fitted_middle(cell, most) for cell in row[:n_names]), *row[n_names:]] for row in rows]
