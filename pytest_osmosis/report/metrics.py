"""The table of metrics in the summary: their means, and how many runs reported them."""

from __future__ import annotations

from collections import Counter

from pytest_osmosis.formats.events import ROLLOUT
from pytest_osmosis.report.columns import fitted_tables
from pytest_osmosis.report.statistics import model_names
from pytest_osmosis.results.metrics import MetricSummaries
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.numbers import count, plural, score
from pytest_osmosis.text.safe import escaped, fitted

MOST_ROWS = 20
NAME_COLUMNS = 60


def metric_rows(results: Results) -> list[list[str]]:
    """Return the cells of the table, head first; no rows if no run reported a metric."""
    baseline = [] if results.baseline is None else [results.baseline.metrics(results.pass_rule)]
    models = list(zip(model_names(results), (results.metrics, *baseline), strict=True))
    names = {(source, name): None for _, metrics in models for source, named in metrics.items() for name in named}
    if not names:
        return []
    head = ["metric", *(["model"] if len(models) > 1 else []), "mean", "min", "max", "runs"]
    rows = []
    times = Counter(name for _, name in names)
    for source, name in names:
        title = _title(source, name, of_source=len(results.pass_rule.scorers) > 1 or times[name] > 1)
        for model, metrics in models:
            rows.append([title, *([model] if len(models) > 1 else []), *_cells(metrics, source, name)])
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


def _title(source: str, name: str, *, of_source: bool) -> str:
    """Return the name of a metric, with its function if it could be another one's."""
    flat = fitted(escaped(" ".join(name.split())), NAME_COLUMNS)
    return f"{flat} ({source})" if of_source and source != ROLLOUT else flat


def _cells(metrics: MetricSummaries, source: str, name: str) -> list[str]:
    found = metrics.get(source, {}).get(name)
    if found is None:
        return ["-", "-", "-", "0"]
    return [score(found.mean), score(found.min), score(found.max), count(found.runs)]
