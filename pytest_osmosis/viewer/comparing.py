"""The page on two eval runs: the finding of `results.compared_runs`, with every row that both have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.report.comparison import (
    comparison_numbers,
    end_texts,
    fairness_texts,
    finding_text,
    left_out_text,
    power_text,
)
from pytest_osmosis.results.compared_runs import (
    ComparedRuns,
    NothingInCommon,
    comparable_rows,
    compare_runs,
    side_of,
)
from pytest_osmosis.results.run_differences import config_diff, run_differences
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.verdicts.comparison import Pair, passes
from pytest_osmosis.viewer.shapes import ComparedRow, ComparisonPage, DifferenceShape, RunRow


class ComparedRun(NamedTuple):
    """One of the two eval runs: its line in the list, its results, and the excerpts of its rows' prompts by index."""

    row: RunRow
    stored: StoredResults
    prompts: Mapping[int, str]


def comparison_page(a: ComparedRun, b: ComparedRun) -> ComparisonPage:
    """Return the page on B compared with A."""
    page = ComparisonPage(
        a=a.row,
        b=b.row,
        problem="",
        meaning=None,
        sentence="",
        caveats=[],
        remarks=[],
        differs=[],
        config_diff=[],
        numbers=None,
        rows=[],
        only_a=[],
        only_b=[],
    )
    sides = side_of("A", a.stored), side_of("B", b.stored)
    page["differs"] = [cast(DifferenceShape, each._asdict()) for each in run_differences(*sides)]
    page["config_diff"] = config_diff(*sides)
    try:
        rows_a, rows_b = comparable_rows(*sides)
        only_a, only_b = ({row.row_index for row in rows} for rows in (rows_a, rows_b))
        page["only_a"], page["only_b"] = sorted(only_a), sorted(only_b)
        compared = compare_runs(*sides)
    except NothingInCommon as error:
        return {**page, "problem": error.reason}
    except OsmosisError as error:
        return {**page, "problem": str(error), "only_a": [], "only_b": []}
    pairs = compared.rows.matched.pairs
    digests = {row.row_index: row.digest for row in rows_b}
    rows = [
        _row(pair, digests[pair.row_index], b.prompts.get(pair.row_index) or a.prompts.get(pair.old_index, ""))
        for pair in pairs
    ]
    return {
        **page,
        "only_a": sorted(only_a - {pair.old_index for pair in pairs}),
        "only_b": sorted(only_b - {pair.row_index for pair in pairs}),
        "meaning": cast(Any, compared.meaning),
        "sentence": finding_text(compared),
        "caveats": fairness_texts(compared),
        "remarks": _remarks(compared),
        "numbers": comparison_numbers(compared),
        "rows": sorted(rows, key=_order),
    }


def _remarks(compared: ComparedRuns) -> list[str]:
    texts = (power_text(compared), left_out_text(compared), *end_texts(compared))
    return [text for text in texts if text is not None]


def _row(pair: Pair, digest: str, prompt: str) -> ComparedRow:
    old, new = passes(pair.old), passes(pair.new)
    loss = old.passed / old.measured - new.passed / new.measured if old.measured and new.measured else None
    return ComparedRow(
        digest=digest,
        prompt=prompt,
        a_row=pair.old_index,
        b_row=pair.row_index,
        a_passed=old.passed,
        a_measured=old.measured,
        b_passed=new.passed,
        b_measured=new.measured,
        change="unmeasured" if loss is None else "worse" if loss > 0 else "better" if loss < 0 else "same",
        loss=loss,
    )


def _order(row: ComparedRow) -> tuple[float, int]:
    """Return the place of a row: the largest loss first, then the largest gain, then the rest as in the dataset."""
    places = {"worse": 0, "better": 1, "same": 2, "unmeasured": 3}
    return places[row["change"]] - abs(row["loss"] or 0.0) / 2, row["b_row"]
