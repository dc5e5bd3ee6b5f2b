"""The table of calibration in the summary: how far scores agree with those of humans."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_osmosis.report.columns import fitted_tables
from pytest_osmosis.report.statistics import interval_text
from pytest_osmosis.results.calibration import Calibration
from pytest_osmosis.results.results import Results
from pytest_osmosis.stats import Figure
from pytest_osmosis.text.numbers import count, difference, plural, score
from pytest_osmosis.text.safe import escaped, fitted

NAME_COLUMNS = 40

FIGURES = {
    "equal": "equal",
    "within": "within {}",
    "kappa": "Cohen's kappa",
    "weighted_kappa": "  with quadratic weights",
    "pearson": "Pearson's correlation",
    "spearman": "Spearman's correlation",
    "mean_difference": "mean difference",
}
"""The figures of an agreement by their keys in results.json, with their names in tables."""


def calibration_lines(results: Results, *, columns: int | None = None) -> list[str]:
    """Return the tables as lines, after an empty one; none without calibration, and for a part of the plan."""
    found = results.calibration
    if found is None or results.is_fragment:
        return []
    rows = calibration_rows(found)
    groups = [1, *(2 for _ in found.functions)]
    return ["", *calibration_notes(found)[:1], *fitted_tables(rows, groups, columns), *calibration_notes(found)[1:]]


def calibration_rows(calibration: Calibration) -> list[list[str]]:
    """Return the cells of the table, head first: a row for each figure, and two columns for each function."""
    named = [fitted(escaped(name), NAME_COLUMNS) for name in calibration.functions]
    rows = [["agreement", *(cell for name in named for cell in (name, "95% interval"))]]
    agreements = [function.agreement for function in calibration.functions.values()]
    rows.append(["runs", *(cell for found in agreements for cell in (count(found.n_runs), ""))])
    for key, title in FIGURES.items():
        if key == "within" and calibration.tolerance is None:
            continue
        tolerance = "" if calibration.tolerance is None else f"{calibration.tolerance:g}"
        rows.append(
            [title.format(tolerance), *(cell for found in agreements for cell in _cells(key, getattr(found, key)))]
        )
    return rows


def calibration_notes(calibration: Calibration) -> list[str]:
    """Return what is compared, then a line for runs that were left out, and for figures that are not defined."""
    unrated = f" ({count(calibration.n_unrated)} without one)" if calibration.n_unrated else ""
    column = fitted(escaped(calibration.column), NAME_COLUMNS)
    return [
        f'human scores in column "{column}": {plural(calibration.n_rated, "row")}{unrated}',
        *_left_out(calibration),
    ]


def _left_out(calibration: Calibration) -> Iterator[str]:
    several = len(calibration.functions) > 1
    for name, function in calibration.functions.items():
        of = f" of {name}" if several else ""
        if function.n_unscored:
            yield f"{plural(function.n_unscored, 'run')}{of} without a score left out"
        found = function.agreement
        if found.equal.undefined:
            yield f"nothing{of} to compare: {found.equal.undefined}"
        elif found.kappa.undefined:
            yield f"no kappa and no correlation{of}: {found.kappa.undefined}"


def _cells(key: str, figure: Figure | None) -> tuple[str, str]:
    if figure is None or figure.value is None:
        return "-", "-"
    if key == "mean_difference" and figure.interval is not None:
        return difference(figure.value), interval_text(figure.interval, difference)
    return score(figure.value), interval_text(figure.interval)
