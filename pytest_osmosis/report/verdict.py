"""The verdict on one eval run, as the last lines of its summary: why it stopped, its pass rate and its gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.record.stop import StopReason
from pytest_osmosis.report.statistics import interval_text, show_command
from pytest_osmosis.report.style import Style, StyledText, dim, joined, warning
from pytest_osmosis.report.summary import known_cost, remark_lines, tokens_text
from pytest_osmosis.results.results import ModelResults, Results, by_row, floor_of, gate_value
from pytest_osmosis.stats import POWER, Summary, mean
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.numbers import count, plural, score
from pytest_osmosis.verdicts.gates import DROP, UNDECIDED, State, Verdict

WORST_ROWS = 5


def verdict_lines(results: Results) -> list[str]:
    """Return why the eval stopped, its pass rate and its gates."""
    return [*rate_lines(results), *_gates(results, results.verdicts)]


def short_verdict_lines(results: Results) -> list[str]:
    """Return what an eval run came to and nothing else: why it stopped, its pass rate and its gates."""
    return [*_stop(results), _pass_rate(results), *map(_gate, results.verdicts)]


def brief_lines(results: Results) -> list[str]:
    """Return what the overview of several evals does not show: why runs have no score, and why gates do not hold.

    An eval that the end of the session kept from beginning needs no more words than the table has.
    """
    if results.stop_reason in ("interrupt", "maxfail") and not any(record.started for record in results.all_records):
        return []
    return [
        *remark_lines(results),
        *_stop(results),
        *_gates(results, [verdict for verdict in results.verdicts if verdict.state != "holds"], power=False),
    ]


def rate_lines(results: Results) -> list[str]:
    """Return why the eval stopped, and its pass rate, with the baseline's."""
    lines = _stop(results)
    if results.smoke_of is not None:
        lines.append(
            f"smoke: {count(len(results.records))} of {plural(results.smoke_of, 'run')}, scores did not decide"
        )
    lines.append(_pass_rate(results))
    return lines if results.baseline is None else [*lines, *_baseline_model(results, results.baseline)]


def _stop(results: Results) -> list[str]:
    """Return why runs are missing, and the line that tells a replay from a measurement."""
    use = results.cassette if results.is_replay else None
    replayed = [] if use is None else [warning(f"replayed from {use.path}: no model was asked")]
    return [*_missing(results), *replayed]


def _missing(results: Results) -> list[str]:
    """Return why runs are missing: the eval stopped, was interrupted, or they were given up one by one."""
    missing = [record for record in results.records if record.status == "pending"]
    if results.decided:
        return [
            f"{count(len(missing))} of {plural(len(results.records), 'run')} not needed: {results.stopped}",
            "stopped early: estimates cover only what ran",
        ]
    what = "never ran" if results.rescored is None else "not scored"
    n_begun, of = sum(record.started for record in missing), plural(len(results.records), "run")
    lines: list[str] = []
    if n_begun and n_begun == len(missing):
        lines = [f"{count(n_begun)} of {of} did not finish"]
    elif missing:
        unfinished = f", {count(n_begun)} did not finish" if n_begun else ""
        lines = [f"{count(len(missing) - n_begun)} of {of} never started{unfinished}"]
    if results.stop_reason == "interrupt":
        lines = [f"interrupted: {line}" for line in lines] or ["interrupted"]
    elif results.stopped is None:
        lines = _given_up(missing, what)
    elif results.rescored is not None and results.stop_reason is None:
        lines = [f"not measured: {results.stopped}", *_given_up(missing, what)]
    else:
        lines = [stop_text(results.stop_reason, results.stopped), *lines]
    return list(map(warning, lines))


def stop_text(reason: StopReason | None, text: str) -> str:
    """Return a line that says why an eval stopped."""
    return text if reason in ("maxfail", "requested") else f"stopped: {text}"


def _given_up(missing: Sequence[RunRecord], what: str) -> list[str]:
    reasons = Counter(record.skip_reason for record in missing)
    return [f"{plural(n, 'run')} {what}{f': {reason}' if reason else ''}" for reason, n in reasons.most_common()]


def _pass_rate(results: Results) -> str:
    overall, pass_rule = results.overall, results.pass_rule
    rate = _rate(results, overall, results.passed)
    if not overall.n_measured:
        return rate
    if len(pass_rule.scorers) > 1:
        decide = pass_rule.decide
        decided = f"{decide} of the functions" if decide in ("all", "any") else f"decided by {decide}"
        rate = f"{rate[:-1]}; {decided})" if rate.endswith(")") else f"{rate} ({decided})"
    if not results.is_fragment and (interval := overall.pass_rate_interval) is not None:
        rate += f"; {interval.level:.0%} interval {interval_text(interval)} ({interval.method})"
    return rate


def _rate(results: Results, overall: Summary, passed: int) -> str:
    """Return the pass rate of a model; for a part of the plan counts, as its rate says nothing about the whole."""
    unmeasured = overall.n_runs - overall.n_measured
    if not overall.n_measured:
        return "no run was measured" if results.is_fragment else "pass rate -: no run was measured"
    if results.is_fragment:
        left_out = f", {count(unmeasured)} not measured" if unmeasured else ""
        planned = "" if results.smoke_of is not None else f" ({count(results.n_planned)} planned)"
        return f"{count(passed)} of {plural(overall.n_runs, 'run')} passed{left_out}{planned}"
    rate = f"pass rate {score(overall.pass_rate)}: {count(passed)} of {plural(overall.n_runs, 'run')} passed"
    return rate + (f", {count(unmeasured)} not measured and counted as not passed" if unmeasured else "")


def _baseline_model(results: Results, baseline: ModelResults) -> list[str]:
    """Return the pass rate and the cost of the baseline's model, and the number of its runs that never ran."""
    records = baseline.records
    rate = _rate(results, baseline.overall, sum(map(results.pass_rule.passed, records)))
    if baseline.overall.n_measured:
        rate += f"; {tokens_text(records)}, {known_cost(results.cost_of(records))}"
    missing = [record for record in records if record.status == "pending"]
    return [f"baseline {baseline.model}: {rate}", *map(warning, _given_up(missing, "of the baseline never ran"))]


def _gates(results: Results, verdicts: Sequence[Verdict], *, power: bool = True) -> list[str]:
    """Return the verdicts, each with the worst rows if it fails, and with its power."""
    lines: list[str] = []
    for verdict in verdicts:
        rows = [line for line in _worst_rows(results, verdict) if line not in lines]
        lines += [_gate(verdict), *rows, *(_power(verdict) if power else [])]
    return lines


def _gate(verdict: Verdict) -> str:
    return joined(f"gate {verdict.title}: ", state_text(verdict), finding_text(verdict))


def _power(verdict: Verdict) -> Iterator[str]:
    """Yield a line if a gate would hardly notice what it is for."""
    rule, power = verdict.rule, verdict.power
    if verdict.state in ("holds", "fails") and rule is not None and power is not None and power.chance < POWER:
        least = rule.minimum - DROP
        truth = f"{rule.name.replace('pass_rate', 'pass rate')} fell to {least:.12g}"
        truth = f"loss were {-least:.12g}" if rule.is_regression else truth
        now = f"if the true {truth}, this gate would notice {power.chance:.0%} of the time"
        yield dim(f"  low power: {now}; {plural(power.rows, 'row')} would make it {POWER:.0%}")


STATES: Mapping[State, Style] = {
    "holds": "good",
    "fails": "bad",
    "not measured": "warning",
    "partial": "warning",
    "not decided": "warning",
}
"""The style of each state of a gate."""


def state_text(verdict: Verdict) -> StyledText:
    """Return the state of a gate, in capitals if it is a verdict."""
    text = "not decided" if verdict.state in UNDECIDED else verdict.state.upper()
    return StyledText((text, STATES[verdict.state]))


def finding_text(verdict: Verdict) -> str:
    """Return what follows the state of a gate: its finding, or why nothing is decided."""
    return f" ({verdict.text})" if verdict.state in UNDECIDED else f": {verdict.text}"


def _worst_rows(results: Results, verdict: Verdict) -> list[str]:
    """Return the rows that kept a gate from holding, the worst first. A comparison names its own rows."""
    rule = verdict.rule
    if rule is None or verdict.state != "fails" or rule.is_regression:
        return []
    floor, of_scores = floor_of(rule, results.records, results.pass_rule), rule.metric == "mean"
    worst: list[tuple[float, RunId, str]] = []
    for row, records in by_row([record for record in results.records if record.status != "skipped"]).items():
        by_run = {record.run: gate_value(rule, record, results.pass_rule, floor) for record in records}
        values = {run: value for run, value in by_run.items() if value is not None}
        rate = mean(list(values.values())) if values else 1.0
        if rate < (rule.minimum if of_scores else 1.0):
            text = score(rate) if of_scores else f"{sum(value == 1.0 for value in values.values())} of {len(values)}"
            worst.append((rate, min(values, key=lambda run: (values[run], run)), f"row{row} {text}"))
    if not worst:
        return []
    worst.sort()
    rows = f"  worst rows: {listed((text for _, _, text in worst), WORST_ROWS)}"
    show = "" if results.is_merged else f"; {show_command(Path(results.provenance['run_dir']), worst[0][1])}"
    return [rows + show]
