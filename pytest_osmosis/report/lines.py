"""Results -> the summary table, a list of lines."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.report.numbers import count, plural, score, seconds
from pytest_osmosis.results import Results
from pytest_osmosis.stats import Summary


def summary_lines(results: Results) -> list[str]:
    """The table of one eval run, what became of its runs, and its gates."""
    return [
        *_table(results),
        "",
        _pass_rate(results),
        *_not_scored(results),
        f"{count(results.total_tokens)} tokens, {seconds(results.duration_ms / 1000)}",
        *(f"gate {verdict.title}: {verdict.state.upper()}: {verdict.text}" for verdict in results.verdicts),
    ]


def _table(results: Results) -> list[str]:
    summaries = results.by_function.values()
    ks = sorted({k for summary in summaries for k in summary.pass_at})
    hats = sorted({k for summary in summaries for k in summary.pass_hat if k > 1})[-1:]
    head = ["eval function", "threshold", "mean", "std", "min", "median", "max"]
    head += ["pass rate"] if not ks else [f"pass@{k}" for k in ks] + [f"pass^{k}" for k in hats]
    rows = [head]
    for name, summary in results.by_function.items():
        rows.append([name, f">= {results.judging.threshold(name):g}", *_numbers(summary, ks, hats)])
    return aligned(rows)


def _numbers(summary: Summary, ks: Sequence[int], hats: Sequence[int]) -> list[str]:
    cells = [summary.mean, summary.std, summary.min, summary.median, summary.max]
    if not ks:
        cells.append(summary.pass_rate)
    cells += [summary.pass_at.get(k) for k in ks] + [summary.pass_hat.get(k) for k in hats]
    return [score(cell) for cell in cells]


def _pass_rate(results: Results) -> str:
    tally = results.tally
    ran = tally.total - results.count("pending")
    rate = f"pass rate {score(results.overall.pass_rate)}: {count(tally.passed)} of {plural(ran, 'run')} passed"
    if len(results.judging.scorers) > 1:
        decide = results.judging.decide
        rate += f" (decided by {decide})" if decide not in ("all", "any") else f" ({decide} of the functions)"
    return rate


def _not_scored(results: Results) -> list[str]:
    """What could not be scored, by cause; nothing where all was."""
    lines = [
        f"{plural(n, 'run')} failed at boundary {boundary}{UNMEASURED.get(boundary, '')}"
        for boundary, n in sorted(results.boundaries().items())
    ]
    if skipped := results.count("skipped"):
        lines.append(f"{plural(skipped, 'run')} taken out by the grader")
    if pending := results.count("pending"):
        lines.append(f"{plural(pending, 'run')} pending: {results.stopped or 'never ran'}")
    if again := sum(record.attempt > 1 for record in results.records):
        lines.append(f"{plural(again, 'run')} rolled out a second time, as the first time the engine host ended")
    return lines


UNMEASURED = {
    "provider": " (not measured, counted as 0)",
    "host": " (not measured, counted as 0)",
    "reward": " (not measured, counted as 0)",
}


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
