"""The pages on several eval runs: two compared row by row, and the history of one eval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from pytest_osmosis import stats
from pytest_osmosis.addons.viewer.compared_runs import (
    NothingInCommon,
    comparable_rows,
    compare_runs,
    config_diff,
    run_differences,
    side_of,
)
from pytest_osmosis.addons.viewer.comparison_lines import (
    comparison_numbers,
    end_texts,
    fairness_texts,
    finding_text,
    left_out_text,
    power_text,
)
from pytest_osmosis.addons.viewer.run_entry import RunEntry
from pytest_osmosis.addons.viewer.shapes import (
    ComparedRow,
    ComparisonPage,
    FlippingRow,
    HistoryChange,
    HistoryPage,
    HistoryPoint,
    ModelHistory,
)
from pytest_osmosis.addons.viewer.stored_results import StoredResults, read_stored
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.lifecycle import lifecycle_of
from pytest_osmosis.results.read import read_results
from pytest_osmosis.results.results import row_runs
from pytest_osmosis.verdicts.comparison import Pair, RowRuns, by_content, matched, passes, share, shares

MOST_RUNS = 30
"""The newest eval runs of a history; earlier ones are counted."""
Prompts = Callable[[], Mapping[int, str]]
"""Returns the excerpts of the prompts of an eval run's rows, by index. It is called for few eval runs."""


class ComparedRun(NamedTuple):
    """One of the two eval runs: its line in the list, its results, and the excerpts of its rows' prompts by index."""

    row: RunEntry
    stored: StoredResults
    prompts: Mapping[int, str]


def comparison_page(a: ComparedRun, b: ComparedRun) -> ComparisonPage:
    """Return the page on B compared with A."""
    sides = side_of("A", a.stored), side_of("B", b.stored)
    page = ComparisonPage(
        a=a.row,
        b=b.row,
        problem="",
        meaning=None,
        sentence="",
        caveats=[],
        remarks=[],
        differs=run_differences(*sides),
        config_diff=config_diff(*sides),
        numbers=None,
        rows=[],
        only_a=[],
        only_b=[],
    )
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
        "meaning": compared.meaning,
        "sentence": finding_text(compared),
        "caveats": fairness_texts(compared),
        "remarks": list(filter(None, (power_text(compared), left_out_text(compared), *end_texts(compared)))),
        "numbers": comparison_numbers(compared),
        "rows": sorted(rows, key=_order),
    }


def _row(pair: Pair, digest: str, prompt: str) -> ComparedRow:
    old, new, now, then = passes(pair.old), passes(pair.new), share(pair.new), share(pair.old)
    loss = None if now is None or then is None else then - now
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


class PastRun(NamedTuple):
    """One eval run of a history: its line in the list, and its rows. `plan` is the digest of its plan, if it is known.

    `problem` says why the rows are not known; "" if they are.
    """

    row: RunEntry
    plan: str | None
    rows: Sequence[RowRuns]
    prompts: Prompts
    problem: str = ""

    @property
    def is_fair_sample(self) -> bool:
        """True if its runs are all that its plan asks for: others may have been chosen by their outcome.

        So are those of an eval run that stopped once its gates were decided.
        """
        row = self.row
        return row.status == "finished" and not row.partial and row.ended == row.selected


def past_run(row: RunEntry, run: StoredEvalRun, prompts: Prompts) -> PastRun:
    """Read an eval run for a history; its rows from the results alone if its last session wrote them."""
    try:
        if run.results is None or not lifecycle_of(run.directory).results_are_current:
            return past_run_of(row, read_stored(run), prompts)
        results = read_results(run.results)
        return PastRun(row, results.provenance["plan_digest"], results.row_runs(), prompts)
    except OsmosisError as error:
        return PastRun(row, run.manifest.plan_digest, (), prompts, str(error))


def past_run_of(row: RunEntry, stored: StoredResults, prompts: Prompts) -> PastRun:
    """Return an eval run that was read already, for a history."""
    plan = stored.results.provenance.get("plan_digest", stored.run.manifest.plan_digest)
    return PastRun(row, plan, row_runs(stored.results), prompts)


def history_page(eval_name: str, runs: Sequence[PastRun]) -> HistoryPage:
    """Return the page on the eval runs of an eval, which may come in any order, by model.

    Each is compared with the newest whole one before of the same plan, which asks the same question; the page on both
    says if the difference may be chance. Rows of different eval runs are the same if their content is.
    """
    ordered = sorted(runs, key=lambda run: (run.row.started_at or "", run.row.name))
    shown = ordered[-MOST_RUNS:]
    models: dict[str, list[PastRun]] = {}
    for run in reversed(shown):
        models.setdefault(run.row.model or "unknown model", []).insert(0, run)
    return HistoryPage(
        eval=eval_name,
        models=[_model_history(model, of_model) for model, of_model in models.items()],
        n_earlier=len(ordered) - len(shown),
    )


def _model_history(model: str, runs: Sequence[PastRun]) -> ModelHistory:
    flipping, n_steady = _flipping(runs)
    found = zip(runs, _changes(runs), strict=True)
    points = [HistoryPoint(row=run.row, plan=run.plan, change=change, problem=run.problem) for run, change in found]
    return ModelHistory(model=model, points=points, rows=flipping, n_steady=n_steady)


# -- changes -----------------------------------------------------------------------------------------------


def _changes(runs: Sequence[PastRun]) -> list[HistoryChange | None]:
    """Return for each eval run its comparison with the whole one before of the same plan, None without one."""
    last: dict[str, PastRun] = {}
    found: list[HistoryChange | None] = []
    for run in runs:
        before = None if run.plan is None else last.get(run.plan)
        found.append(None if before is None else _change(run, before))
        if run.plan is not None and run.is_fair_sample and any(passes(each.runs).measured for each in run.rows):
            last[run.plan] = run
    return found


def _change(run: PastRun, before: PastRun) -> HistoryChange | None:
    new, old = shares(matched(run.rows, before.rows).pairs)
    if not new:
        return None
    return HistoryChange(before=before.row.name, difference=stats.mean(new) - stats.mean(old), rows=len(new))


# -- rows that flip ----------------------------------------------------------------------------------------


def _flipping(runs: Sequence[PastRun]) -> tuple[list[FlippingRow], int]:
    """Return the rows that flip, those that flip most often first, and the number of those that never do."""
    found = [{key: (row.row_index, passes(row.runs)) for key, row in by_content(run.rows).items()} for run in runs]
    keys = dict.fromkeys(key for rows in reversed(found) for key in rows)
    prompts_of = cache(lambda at: runs[at].prompts())
    flipping, n_steady = [], 0
    for key in keys:
        measured = {at: rows[key] for at, rows in enumerate(found) if key in rows and rows[key][1].measured}
        halves = [2 * each.passed - each.measured for _, each in measured.values()]
        sides = [half > 0 for half in halves if half]  # as many passed as failed: neither
        flips = sum(now != then for then, now in pairwise(sides))
        n_steady += len(measured) > 1 and not flips
        if flips:
            last = max(measured)
            prompts = (prompts_of(at).get(index) for at, (index, _) in reversed(measured.items()))
            each = [measured.get(at) for at in range(len(runs))]
            flipping.append(
                FlippingRow(
                    digest=key[0],
                    prompt=next(filter(None, prompts), ""),
                    row_index=measured[last][0],
                    row_indices=[None if one is None else one[0] for one in each],
                    passed=[None if one is None else one[1].passed for one in each],
                    measured=[None if one is None else one[1].measured for one in each],
                    flips=flips,
                )
            )
    return sorted(flipping, key=lambda row: (-row["flips"], row["row_index"])), n_steady
