"""The summary of one eval run, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.causes import cause_lines
from pytest_osmosis.report.changed_rows import better_and_worse, changed_rows_lines
from pytest_osmosis.report.statistics import interval_text, statistics_lines
from pytest_osmosis.report.style import Style, StyledText, dim, joined, warning
from pytest_osmosis.results.read import PublishedHead
from pytest_osmosis.results.results import ModelResults, Rescored, Results, Throttling, tokens_of
from pytest_osmosis.stats import POWER, Paired, Summary
from pytest_osmosis.text.numbers import count, difference, moment, money, p_value, plural, score, seconds
from pytest_osmosis.verdicts.comparison import RowComparison, meaning_text, nothing_text, rates_text
from pytest_osmosis.verdicts.gates import DROP, UNDECIDED, State, Verdict


def summary_lines(results: Results, *, verbose: bool = False, columns: int | None = None) -> list[str]:
    """Return the statistics, the account of the runs, and the gates, for a terminal with this many `columns`."""
    return [
        *statistics_lines(results, verbose=verbose, columns=columns),
        "",
        *account_lines(results),
        *(line for verdict in results.verdicts for line in _gate(verdict)),
    ]


def verdict_lines(results: Results) -> list[str]:
    """Return what an eval run came to and nothing else: its pass rate and its gates."""
    return [_pass_rate(results), *(_gate(verdict)[0] for verdict in results.verdicts)]


def brief_lines(results: Results) -> list[str]:
    """Return what the overview of several evals does not show: why runs have no score, and why gates do not hold."""
    worse = [each for each in results.comparisons if each.paired is not None and each.paired.worse]
    return [
        *_not_scored(results),
        *_truncated(results),
        *(line for each in worse for line in (*_compared(each), *changed_rows_lines(each, results)[:1])),
        *(line for verdict in results.verdicts if verdict.state != "holds" for line in _gate(verdict)[:1]),
    ]


def _gate(verdict: Verdict) -> list[str]:
    lines: list[str] = [joined(f"gate {verdict.title}: ", state_text(verdict), finding_text(verdict))]
    decided = verdict.state in ("holds", "fails")
    if decided and verdict.rule is not None and verdict.power is not None and verdict.power.chance < POWER:
        chance, n_rows = verdict.power
        least = verdict.rule.minimum - DROP
        truth = f"{verdict.rule.name.replace('pass_rate', 'pass rate')} fell to {least:.12g}"
        if verdict.rule.is_regression:
            truth = f"loss were {-least:.12g}"
        lines.append(
            dim(
                f"  low power: if the true {truth}, this gate would notice {chance:.0%} of the time; "
                f"{plural(n_rows, 'row')} would make it {POWER:.0%}"
            )
        )
    return lines


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


def account_lines(results: Results) -> list[str]:
    """Return the outcomes of the runs, their cost, and the comparisons with other eval runs."""
    return [
        *_smoke(results),
        _pass_rate(results),
        *(_baseline_model(results, results.baseline) if results.baseline is not None else []),
        *_not_scored(results),
        *_truncated(results),
        *_equal_answers(results),
        _took(results),
        *_throttled(results.throttling),
        *(_reused(results, results.rescored) if results.rescored is not None else []),
        *(line for compared in results.comparisons for line in comparison_lines(compared, results)),
    ]


def notice_lines(notices: Iterable[str]) -> list[str]:
    """Return each notice once, with the number of times.

    >>> notice_lines(["a host ended", "the baseline is new", "a host ended"])
    ['a host ended (2 times)', 'the baseline is new']
    """
    return [text if times == 1 else f"{text} ({count(times)} times)" for text, times in Counter(notices).items()]


def _took(results: Results) -> str:
    """Return tokens, cost and time; for stored rollouts, those of the time when they were made."""
    took = ", ".join([*_spent(results), seconds(results.duration_ms / 1000)])
    return dim(took if results.rescored is None else f"the rollouts took {took}")


def _throttled(throttling: Throttling) -> list[str]:
    lines = [
        f"[execution] {name} delayed requests by {seconds(held_s)} in all"
        for name, held_s in throttling.held_s.items()
        if held_s >= HELD_S
    ]
    if throttling.pauses:
        lines.append(
            f"the server refused requests (429, 503): {plural(throttling.pauses, 'pause')}, "
            f"{seconds(throttling.paused_s)} in all; at times {throttling.least_in_flight} of {throttling.limit} "
            "rollouts in flight"
        )
    return lines


HELD_S = 0.1
"""Seconds. A limit that held requests for less is not worth a line."""


def _reused(results: Results, rescored: Rescored) -> list[str]:
    if not rescored.kept:
        return []
    several = len(results.pass_rule.scorers) > 1
    kept = ", ".join(
        plural(n, "stored score") + (f" of {name}" if several else "") for name, n in rescored.kept.items()
    )
    return [f"reused {kept} (code and rows unchanged); --osmosis-rescore recomputes them"]


def stored_line(run: str, rolled_out_at: str, n_stored: int, n_gone: int) -> str:
    """Return the header's line on the stored rollouts that are scored again."""
    without = f" ({plural(n_gone, 'run')} without one)" if n_gone else ""
    stored = f"{plural(n_stored, 'stored rollout')}{without}"
    return f"from run {run} of {moment(rolled_out_at)}: {stored}, no model is asked"


def _smoke(results: Results) -> list[str]:
    if results.smoke_of is None:
        return []
    return [f"smoke: {count(len(results.records))} of {plural(results.smoke_of, 'run')}, scores did not decide"]


def _pass_rate(results: Results) -> str:
    overall, pass_rule = results.overall, results.pass_rule
    rate = _rate(overall, results.passed)
    if not overall.n_measured:
        return rate
    if len(pass_rule.scorers) > 1:
        decide = pass_rule.decide
        rate += f" (decided by {decide})" if decide not in ("all", "any") else f" ({decide} of the functions)"
    if (interval := overall.pass_rate_interval) is not None:
        rate += f"; {interval.level:.0%} interval {interval_text(interval)} ({interval.method})"
    return rate


def _rate(overall: Summary, passed: int) -> str:
    if not overall.n_measured:
        return "pass rate -: no run was measured"
    rate = f"pass rate {score(overall.pass_rate)}: {count(passed)} of {plural(overall.n_runs, 'run')} passed"
    unmeasured = overall.n_runs - overall.n_measured
    return rate + (f", {count(unmeasured)} not measured and counted as not passed" if unmeasured else "")


def _baseline_model(results: Results, baseline: ModelResults) -> list[str]:
    """Return the pass rate and the cost of the baseline's model, and the number of its runs that never ran."""
    rate = f"baseline {baseline.model}: {_rate(baseline.overall, sum(map(results.pass_rule.passed, baseline.records)))}"
    if baseline.overall.n_measured:
        cost = results.cost_of(baseline.records)
        rate += f"; {_tokens(baseline.records)}, {'cost unknown' if cost is None else money(cost)}"
    pending = sum(record.status == "pending" for record in baseline.records)
    return [rate, *([f"{plural(pending, 'run')} of the baseline never ran"] if pending else [])]


def _spent(results: Results) -> list[str]:
    """Return tokens and cost; "0 tokens" if nothing was rolled out."""
    if not any(record.rolled for record in results.all_records):
        return ["0 tokens"]
    return [_tokens(results.all_records, results.usage), _known_cost(results.cost_usd, results.n_cost_unknown)]


def _tokens(records: Iterable[RunRecord], usage: Mapping[str, int] = MappingProxyType({})) -> str:
    """Return the known tokens, their parts by `usage`, and the number of rollouts whose tokens are not known."""
    rolled = [record for record in records if record.rolled]
    unknown = sum(record.tokens is None for record in rolled)
    if unknown == len(rolled):
        return "tokens unknown"
    parts = [f"{count(usage[name])} {word}" for name, word in PARTS.items() if usage.get(name)]
    gap = [f"unknown for {plural(unknown, 'run')}"] if unknown else []
    aside = f" ({', '.join(parts + gap)})" if parts or gap else ""
    return plural(tokens_of(rolled), "token") + aside


PARTS = {
    "input_tokens": "in",
    "output_tokens": "out",
    "cached_input_tokens": "cached",
    "cache_write_tokens": "written to a cache",
    "reasoning_tokens": "reasoning",
}
"""Token counts by name, and how the summary calls them."""


def _known_cost(cost_usd: float | None, n_unknown: int) -> str:
    if cost_usd is None:
        return "cost unknown"
    return money(cost_usd) + (f" (unknown for {plural(n_unknown, 'run')})" if n_unknown else "")


def _not_scored(results: Results) -> list[str]:
    lines = cause_lines(results.causes, len(results.records) - results.count("pending"))
    lines += [
        f"{name} gave {plural(n, 'run')} no score (counted as 0, but it does not decide)"
        for name, n in _unscored_aside(results).items()
    ]
    if skipped := results.count("skipped"):
        lines.append(f"{plural(skipped, 'run')} taken out by the grader")
    if pending := results.count("pending"):
        lines += _pending(results, pending)
    if again := sum(record.attempt > 1 for record in results.records):
        lines.append(f"{plural(again, 'run')} rolled out a second time, because the first process ended")
    return lines


def _pending(results: Results, n: int) -> list[str]:
    if not results.decided:
        return [warning(f"{plural(n, 'run')} pending: {results.stopped or 'never ran'}")]
    return [
        f"{count(n)} of {plural(len(results.records), 'run')} not needed: {results.stopped}",
        "stopped early: estimates cover only what ran",
    ]


def _truncated(results: Results) -> list[str]:
    """Return a line on answers that were cut off: a low token limit can look like a weak model."""
    cut = results.truncated
    if not cut:
        return []
    lost = sum(not results.pass_rule.passed(record) for record in cut)
    bound = results.description.extra.get("sampling", {}).get("max_tokens")
    fix = "set [sampling] max_tokens" if bound is None else f"raise [sampling] max_tokens (now {bound})"
    return [f"{plural(len(cut), 'answer')} cut off (finish_reason length), {count(lost)} of them did not pass: {fix}"]


def _equal_answers(results: Results) -> list[str]:
    """Return a line if the runs of most rows give equal answers, so that n runs say no more than one."""
    answered, n = results.answered_rows, results.description.n
    if answered.lost < FEWEST or answered.equal < MOST * answered.rows or answered.lost_equal < MOST * answered.lost:
        return []
    sampling = results.description.extra.get("sampling", {})
    cause = "check that the server samples and honours the seed"
    if sampling.get("temperature") == 0:
        cause = "the temperature is 0"
    rows = f"{count(answered.equal)} of {plural(answered.rows, 'row')}"
    return [f"{rows} gave {n} equal answers, so pass@k says no more than pass@1: {cause}"]


FEWEST = 3
"""With fewer rows that did not pass, equal answers mean little."""
MOST = 0.9
"""The share of rows with equal answers that is worth a line, of all rows and of those that did not pass."""


def _unscored_aside(results: Results) -> dict[str, int]:
    """Return the number of finished runs without a score by each function that does not decide."""
    finished = [record for record in results.records if record.status == "finished"]
    aside = [name for name in results.pass_rule.scorers if name not in results.pass_rule.deciding]
    counts = {name: sum(name not in record.scores for record in finished) for name in aside}
    return {name: n for name, n in counts.items() if n}


def last_run_line(last: PublishedHead) -> str:
    """Return what the last run of the plan took, for the header."""
    cost = _known_cost(last.cost_usd, last.n_cost_unknown)
    tokens = plural(last.total_tokens, "token")
    took = f"{plural(last.total_runs, 'rollout')}, {tokens}, {cost}, {seconds(last.duration_s)}"
    return f"last run ({moment(last.started_at)}): {took}"


def comparison_lines(compared: RowComparison, results: Results) -> list[str]:
    """Return the rates and the numbers of rows that changed, then the rows by name."""
    return [*_compared(compared), *changed_rows_lines(compared, results)]


def _compared(compared: RowComparison) -> list[str]:
    when = f" ({moment(compared.started_at)})" if compared.started_at is not None else ""
    match compared.kind:
        case "verdicts before":
            return [f"against the previous verdicts ({compared.name}): {_changes(compared)}"] if compared.n_rows else []
        case "previous run":
            n_left = compared.n_not_compared
            left_out = f"; {plural(n_left, 'row')} not compared" if n_left else ""
            return [f"against the last run{when}: {_changes(compared)}{left_out}"]
    head = f"against the baseline {compared.name}{when}: "
    if compared.paired is None:
        return [f"{head}not measured: {nothing_text(compared)}{_left_out(compared)}"]
    return [
        f"{head}{rates_text(compared)}{_left_out(compared)}",
        f"  {_difference(compared, compared.paired)}",
        *(f"  the baseline differs in {setting}" for setting in compared.differs),
    ]


def _changes(compared: RowComparison) -> str:
    """Return the number of rows that changed, with p if chance could have changed them."""
    paired = compared.paired
    if paired is None or not paired.better + paired.worse:
        return f"no row of {count(compared.n_rows)} changed"
    changes = better_and_worse(paired.better, paired.worse)
    if compared.kind == "verdicts before":
        return changes
    cause = "may be chance" if compared.meaning == "noise" else "unlikely to be chance"
    return f"{changes}; {cause} (p {p_value(compared.p)})"


def _difference(compared: RowComparison, paired: Paired) -> str:
    interval = f", 95% interval {difference(paired.interval.low)} to {difference(paired.interval.high)}"
    p = f"p {p_value(paired.p)}, {paired.test}"
    if compared.n_evals > 1:
        p += f"; as one of {compared.n_evals} evals p {p_value(compared.p)}, Holm"
    changes = better_and_worse(paired.better, paired.worse) if paired.better + paired.worse else "no row changed"
    return f"{difference(paired.difference)}{interval}; {changes}: {meaning_text(compared)} ({p})"


def _left_out(compared: RowComparison) -> str:
    rows = compared.matched
    counts = {
        "changed": rows.changed,
        "added": rows.added,
        "removed": rows.removed,
        "not measured": compared.n_unmeasured,
    }
    parts = [f"{count(n)} {reason}" for reason, n in counts.items() if n]
    return f"; rows left out: {', '.join(parts)}" if parts else ""
