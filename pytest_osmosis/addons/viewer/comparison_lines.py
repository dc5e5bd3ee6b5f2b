"""Two eval runs compared: their page, the finding in words and all that limits it, and both as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from pytest_osmosis import stats
from pytest_osmosis.addons.viewer.compared_runs import (
    ComparedRate,
    ComparedRuns,
    RunDifference,
    Side,
    config_diff,
    run_differences,
)
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.failure_text import ScoredAnswer
from pytest_osmosis.report.statistics import (
    MOST_NAMED,
    better_and_worse,
    interval_text,
    named_rows,
    rows_left_out,
    show_command,
)
from pytest_osmosis.report.style import Style, StyledText, aligned, bold, dim, joined, warning
from pytest_osmosis.report.summary import known_cost
from pytest_osmosis.results.results import n_cost_unknown
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import count, difference, moment, p_value, plural, score, seconds
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.comparison import ChangedRow, Passes, chance_text, power_of
from pytest_osmosis.verdicts.gates import DROP
from pytest_osmosis.verdicts.pass_rule import kind_of, reason_of

MOST_DIFF_LINES = 20
SCHEMA_VERSION = 1


def meaning_text(compared: ComparedRuns) -> str:
    """Return the meaning of the difference in some words."""
    texts = {"better": "B is better", "worse": "B is worse", "chance": chance_text(compared.paired.difference)}
    return texts.get(compared.meaning or "", "decides nothing")


def finding_text(compared: ComparedRuns) -> str:
    """Return the finding in one sentence: its meaning, the difference, its interval, p, the test, and the rows."""
    paired = compared.paired
    over = "the one row" if paired.n_rows == 1 else f"the {count(paired.n_rows)} rows"
    test = f"95% interval {interval_text(paired.interval, difference)}, p {p_value(paired.p)}, {paired.test}"
    differs = f"differs by {difference(paired.difference)}" if paired.difference else "is the same"
    rows = better_and_worse(paired.better, paired.worse)
    meaning = meaning_text(compared).capitalize()
    return f"{meaning}: over {over} that both measured, the pass rate of B {differs} ({test}); {rows}."


def fairness_texts(compared: ComparedRuns) -> list[str]:
    """Return the reasons why the difference decides nothing."""
    texts = list(compared.caveats)
    if compared.least_p is not None:
        rows = plural(compared.rows.n_rows, "row")
        texts.append(f"{rows} cannot show a difference: p is at least {compared.least_p:.2g}, whatever the rows are")
    return texts


def power_text(compared: ComparedRuns) -> str | None:
    """Return the chance to notice a small difference, None if it is large enough, not known, or of no interest."""
    power = power_of(compared.paired)
    if compared.meaning != "chance" or power is None or not power.is_low:
        return None
    return (
        f"low power: a true difference of {DROP:g} would be noticed {power.chance:.0%} of the time; "
        f"{plural(power.rows, 'row')} would make it {stats.POWER:.0%}"
    )


def left_out_text(compared: ComparedRuns) -> str | None:
    """Return the numbers of rows that are not compared, None if all are."""
    rows = compared.rows.matched
    counts = {
        "only in A": rows.removed,
        "only in B": rows.added,
        "with other content": rows.changed,
        "not measured in both": compared.rows.n_unmeasured,
    }
    return rows_left_out(counts) or None


def end_texts(compared: ComparedRuns) -> list[str]:
    """Return how the sides ended that did not finish."""
    texts = []
    for side in (compared.a, compared.b):
        end = side.end
        if end.reason is not None and not side.caveats:
            ended = "failed" if end.status == "failed" else "was stopped"
            texts.append(f"{side.letter} {ended}: {one_line(end.reason)}")
        if not side.has_ended:
            texts.append(f"{side.letter} did not end: only rows that it has measured so far are compared")
    return texts


def comparison_lines(compared: ComparedRuns, *, every_row: bool) -> Iterator[str]:
    """Yield the lines of the page. The first rows that changed are named unless `every_row` is."""
    yield from _sides(compared)
    yield ""
    yield from _verdict(compared)
    yield from _differences(compared, whole=every_row)
    if changed := compared.changed:
        yield from ("", bold("rows that changed:"), *named_rows(changed, len(changed) if every_row else MOST_NAMED))
        for side, index in ((compared.a, changed[0].earlier_row_index), (compared.b, changed[0].row_index)):
            if side.stored is not None:
                command = show_command(side.stored.run.directory.path)
                yield dim(f"  row{index} in {side.letter}: {command} row{index}")


# -- what they came to -------------------------------------------------------------------------------------


def _sides(compared: ComparedRuns) -> Iterator[str]:
    sides = (compared.a, compared.b)
    rows = [[what, *map(cell, sides)] for what, cell in _FACTS.items()]
    if any(side.results.judges for side in sides):
        rows.append(["judges", *map(_judges, sides)])
    head, *lines = aligned(rows, left=(0, 1, 2))
    yield bold(head)
    yield from lines


def _passed(side: Side) -> str:
    overall = side.results.overall
    unmeasured = overall.n_runs - overall.n_measured
    left_out = f", {count(unmeasured)} not measured" if unmeasured else ""
    return f"{count(side.results.passed)} of {plural(overall.n_runs, 'run')}{left_out}"


def _cost(side: Side) -> str:
    cost, unknown = side.results.cost_usd, n_cost_unknown(side.results)
    if cost is None:
        return "unknown" if side.results.overall.n_runs else "-"
    return known_cost(cost, unknown)


def _judges(side: Side) -> str:
    judges = side.results.judges
    return "-" if judges is None else known_cost(judges.cost_usd)


def _started(side: Side) -> str:
    started = side.results.provenance.get("started_at")
    return "-" if started is None else moment(started)


_FACTS: Mapping[str, Callable[[Side], str]] = {
    "": lambda side: side.letter,
    "run": lambda side: side.name,
    "status": lambda side: side.state,
    "started": _started,
    "model": lambda side: side.results.description.model,
    "rows": lambda side: f"{count(len(side.records))}, n = {side.results.description.n}",
    "passed": _passed,
    "tokens": lambda side: count(side.results.total_tokens),
    "cost": _cost,
    "time": lambda side: seconds(side.results.duration_ms / 1000),
}


# -- the comparison ----------------------------------------------------------------------------------------


def _verdict(compared: ComparedRuns) -> Iterator[str]:
    rows, paired = compared.rows, compared.paired
    over = "1 row" if rows.n_rows == 1 else f"{count(rows.n_rows)} rows"
    yield f"pass rate over the {over} that both measured, with its 95% interval:"
    for letter, rate in (("A", compared.rate_a), ("B", compared.rate_b)):
        yield f"  {letter}      {score(rate.value)} ({interval_text(rate.interval)})"
    interval = interval_text(paired.interval, difference)
    test = f" (p {p_value(paired.p)}, {paired.test})"
    styles: Mapping[str | None, Style] = {"better": "good", "worse": "bad", None: "warning"}
    meaning = StyledText((meaning_text(compared), styles.get(compared.meaning)))
    yield joined(f"  B - A  {difference(paired.difference)} ({interval}): ", meaning, test)
    yield f"  {better_and_worse(paired.better, paired.worse)}"
    yield from (warning(f"  {caveat}") for caveat in fairness_texts(compared))
    if (power := power_text(compared)) is not None:
        yield dim(f"  {power}")
    if (left_out := left_out_text(compared)) is not None:
        yield f"  {left_out}"
    yield from (warning(f"  {text}") for text in end_texts(compared))


# -- differences -------------------------------------------------------------------------------------------


def _differences(compared: ComparedRuns, *, whole: bool) -> Iterator[str]:
    found = run_differences(compared.a, compared.b)
    yield ""
    if not found:
        yield "nothing that is recorded differs: config, model, code and data are the same"
    else:
        yield bold("differences:")
        if any(each.area == "scoring" for each in found):
            yield warning("  the runs were scored differently, so their pass rates do not mean the same")
        rows = [[f"  {each.what}", _values(each)] for each in found]
        yield from aligned(rows, left=(0, 1))
    lines = config_diff(compared.a, compared.b)
    if lines:
        yield "  lines of the TOML (- A, + B):"
        shown = lines if whole else lines[:MOST_DIFF_LINES]
        yield from (f"    {one_line(line)}" for line in shown)
        if len(shown) < len(lines):
            yield f"    and {count(len(lines) - len(shown))} more; --all shows them"


def _values(found: RunDifference) -> str:
    if found.a is None and found.b is None:
        return "changed"
    return " -> ".join("-" if text is None else one_line(text) for text in (found.a, found.b))


def comparison_json(compared: ComparedRuns) -> dict[str, Any]:
    """Return the comparison as JSON. Raises `JournalError` if an answer cannot be read."""
    return {
        **comparison_numbers(compared),
        "differences": list(map(asdict, run_differences(compared.a, compared.b))),
        "config_diff": config_diff(compared.a, compared.b),
        "changed_rows": [_row(compared, row) for row in compared.changed],
    }


def comparison_numbers(compared: ComparedRuns) -> dict[str, Any]:
    """Return the comparison as JSON without its rows and the differences of both eval runs; this reads no journal."""
    rows, paired = compared.rows, compared.paired
    return {
        "schema_version": SCHEMA_VERSION,
        "a": _side(compared.a, compared.rate_a),
        "b": _side(compared.b, compared.rate_b),
        "rows": {
            "compared": rows.n_rows,
            "only_a": rows.matched.removed,
            "only_b": rows.matched.added,
            "other_content": rows.matched.changed,
            "not_measured": rows.n_unmeasured,
        },
        "better": paired.better,
        "worse": paired.worse,
        "difference": paired.difference,
        "difference_interval": asdict(paired.interval),
        "p_value": paired.p,
        "test": paired.test,
        "least_p": compared.least_p,
        "caveats": list(compared.caveats),
        "meaning": compared.meaning,
    }


def _side(side: Side, rate: ComparedRate) -> dict[str, Any]:
    results, overall = side.results, side.results.overall
    return {
        "run": None if side.is_file else side.name,
        "path": shown(side.path),
        "state": side.end.status,
        "started_at": results.provenance.get("started_at"),
        "eval": results.description.name,
        "model": results.description.model,
        "n_runs": results.description.n,
        "rows": len(side.records),
        "counted": overall.n_runs,
        "measured": overall.n_measured,
        "passed": results.passed,
        "pass_rate": rate.value,
        "pass_rate_interval": asdict(rate.interval),
        "tokens": results.total_tokens,
        "cost_usd": results.cost_usd,
        "cost_unknown": n_cost_unknown(results),
        "judges_cost_usd": None if results.judges is None else results.judges.cost_usd,
        "duration_ms": round(results.duration_ms, 3),
    }


def _row(compared: ComparedRuns, row: ChangedRow) -> dict[str, Any]:
    return {
        "change": row.change,
        "a": _row_of(compared.a, row.earlier_row_index, row.old),
        "b": _row_of(compared.b, row.row_index, row.new),
    }


def _row_of(side: Side, index: int, passes: Passes) -> dict[str, Any]:
    return {
        "row_index": index,
        "passed": passes.passed,
        "measured": passes.measured,
        "runs": [_run(side, record) for record in side.records[index]],
    }


def _run(side: Side, record: RunRecord) -> dict[str, Any]:
    answer, rule = None, side.results.pass_rule
    if side.stored is not None and record.rolled:
        answer = ScoredAnswer.of(side.stored.history(record).transcript).text
    return {
        "run": str(record.run),
        "outcome": kind_of(record, rule) if record.status != "pending" else "pending",
        "reason": one_line(reason_of(record, rule)),
        "scores": dict(record.scores),
        "answer": answer,
    }
