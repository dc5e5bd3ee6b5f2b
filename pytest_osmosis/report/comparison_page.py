"""The page on two eval runs: what they came to, in what they differ, and the rows that B passes more or less often."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pytest_osmosis.report.changed_rows import MOST_NAMED, better_and_worse, named_rows
from pytest_osmosis.report.columns import aligned
from pytest_osmosis.report.comparison_texts import (
    end_texts,
    fairness_texts,
    left_out_text,
    meaning_text,
    power_text,
)
from pytest_osmosis.report.show_command import show_command
from pytest_osmosis.report.statistics import interval_text
from pytest_osmosis.report.style import Style, StyledText, bold, dim, joined, warning
from pytest_osmosis.results.compared_runs import ComparedRate, ComparedRuns, Side
from pytest_osmosis.results.run_differences import RunDifference, config_diff, run_differences
from pytest_osmosis.text.numbers import count, difference, moment, money, p_value, plural, score, seconds
from pytest_osmosis.text.safe import one_line

MOST_DIFF_LINES = 20


def comparison_lines(compared: ComparedRuns, *, every_row: bool) -> Iterator[str]:
    """Yield the lines of the page. The first rows that changed are named unless `every_row` is."""
    yield from _sides(compared)
    yield ""
    yield from _verdict(compared)
    yield from _differences(compared, whole=every_row)
    if changed := compared.changed:
        yield from ("", bold("rows that changed:"), *named_rows(changed, len(changed) if every_row else MOST_NAMED))
        for side, index in ((compared.a, changed[0].old_index), (compared.b, changed[0].row_index)):
            if side.stored is not None:
                command = show_command(side.stored.run.directory.path)
                yield dim(f"  row{index} in {side.letter}: {command} row{index}")


# -- what they came to -------------------------------------------------------------------------------------


def _sides(compared: ComparedRuns) -> Iterator[str]:
    sides = (compared.a, compared.b)
    rows = [["", *(side.letter for side in sides)]]
    rows += [[what, *(cell(side) for side in sides)] for what, cell in _FACTS.items()]
    if any(side.summary.get("judges") for side in sides):
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
    cost, unknown = side.summary["cost_usd"], side.summary["cost_unknown"]
    if cost is None:
        return "unknown" if side.results.overall.n_runs else "-"
    return money(cost) + (f" (unknown for {plural(unknown, 'run')})" if unknown else "")


def _judges(side: Side) -> str:
    judges = side.summary.get("judges")
    if not judges:
        return "-"
    return "cost unknown" if judges["cost_usd"] is None else money(judges["cost_usd"])


def _started(side: Side) -> str:
    started = side.provenance.get("started_at")
    return "-" if started is None else moment(started)


_FACTS: Mapping[str, Callable[[Side], str]] = {
    "run": lambda side: side.name,
    "status": lambda side: side.state,
    "started": _started,
    "model": lambda side: str(side.config["model"]),
    "rows": lambda side: f"{count(len(side.records))}, n = {side.config['n_runs']}",
    "passed": _passed,
    "tokens": lambda side: count(side.summary["total_tokens"]),
    "cost": _cost,
    "time": lambda side: seconds(side.summary["total_duration_ms"] / 1000),
}


# -- the comparison ----------------------------------------------------------------------------------------


def _verdict(compared: ComparedRuns) -> Iterator[str]:
    rows, paired = compared.rows, compared.rows.paired
    over = "1 row" if rows.n_rows == 1 else f"{count(rows.n_rows)} rows"
    yield f"pass rate over the {over} that both measured, with its 95% interval:"
    yield f"  A      {_rate(compared.rate_a)}"
    yield f"  B      {_rate(compared.rate_b)}"
    if paired is None:
        return
    interval = interval_text(paired.interval, difference)
    test = f" (p {p_value(paired.p)}, {paired.test})"
    yield joined(f"  B - A  {difference(paired.difference)} ({interval}): ", _meaning(compared), test)
    yield f"  {better_and_worse(paired.better, paired.worse)}"
    yield from (warning(f"  {caveat}") for caveat in fairness_texts(compared))
    if (power := power_text(compared)) is not None:
        yield dim(f"  {power}")
    if (left_out := left_out_text(compared)) is not None:
        yield f"  {left_out}"
    yield from (warning(f"  {text}") for text in end_texts(compared))


def _rate(rate: ComparedRate) -> str:
    return f"{score(rate.value)} ({interval_text(rate.interval)})"


def _meaning(compared: ComparedRuns) -> StyledText:
    styles: Mapping[str | None, Style] = {"better": "good", "worse": "bad", None: "warning"}
    return StyledText((meaning_text(compared), styles.get(compared.meaning)))


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
        rows = [[f"  {each.what}", *_values(each)] for each in found]
        yield from aligned(rows, left=(0, 1))
    lines = config_diff(compared.a, compared.b)
    if lines:
        yield "  lines of the TOML (- A, + B):"
        shown = lines if whole else lines[:MOST_DIFF_LINES]
        yield from (f"    {one_line(line)}" for line in shown)
        if len(shown) < len(lines):
            yield f"    and {count(len(lines) - len(shown))} more; --all shows them"


def _values(found: RunDifference) -> list[str]:
    if found.a is None and found.b is None:
        return ["changed"]
    return [f"{_value(found.a)} -> {_value(found.b)}"]


def _value(text: str | None) -> str:
    return "-" if text is None else one_line(text)
