"""The summary of one eval run, as lines of text, without the verdict that follows (`verdict`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pytest_osmosis.record.lifecycle import StopReason
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import ReplicaRequests, RunRecord
from pytest_osmosis.report.statistics import (
    better_and_worse,
    changed_rows_lines,
    interval_text,
    metric_lines,
    rows_left_out,
    show_command,
    statistics_lines,
)
from pytest_osmosis.report.style import Style, StyledText, dim, joined, warning
from pytest_osmosis.results.read import PublishedHead
from pytest_osmosis.results.results import (
    Cause,
    Compared,
    ModelResults,
    Rescored,
    Results,
    Throttling,
    by_row,
    causes_aside,
    causes_of,
    comparisons_of,
    equal_answers,
    floor_of,
    gate_value,
    n_cost_unknown,
    tokens_of,
)
from pytest_osmosis.results.totals import CassetteUse, replica_totals
from pytest_osmosis.stats import ALPHA, POWER, Summary, mean
from pytest_osmosis.text.chat_messages import FILTERED, REFUSED
from pytest_osmosis.text.names import listed
from pytest_osmosis.text.numbers import clock_time, count, difference, moment, money, p_value, plural, score, seconds
from pytest_osmosis.verdicts.comparison import LastRun, meaning_text, nothing_text, rates_text
from pytest_osmosis.verdicts.gates import DROP, UNDECIDED, State, Verdict

MOST_LISTED = 5
MOST_SHARE = 0.05
"""A message of a model's server that more of the runs met is hardly about single answers."""
HELD_S = 0.1
"""Seconds. A limit that held requests for less is not worth a line."""
PARTS = {
    "input_tokens": "in",
    "output_tokens": "out",
    "cached_input_tokens": "cached",
    "cache_write_tokens": "written to a cache",
    "reasoning_tokens": "reasoning",
}
"""Token counts by name, and how the summary calls them."""
FEWEST = 3
"""With fewer rows that did not pass, equal answers mean little."""
MOST = 0.9
"""The share of rows with equal answers that is worth a line, of all rows and of those that did not pass."""


def cause_lines(causes: Sequence[Cause], n_runs: int, *, of: str = "") -> list[str]:
    """Return a line on each of the most frequent causes, and one on all others.

    `n_runs` is the number of runs that ended. `of` says whose they are, like " of the baseline".
    """
    lines: list[str] = []
    for cause in causes[:MOST_LISTED]:
        n = len(cause.runs)
        runs = plural(n, "run") + of
        if not cause.is_measured:
            lines.append(warning(f"{runs} not measured: {cause.text} (first: {cause.first})"))
            continue
        lines.append(f"{runs} counted as failed: {cause.text} (boundary {cause.boundary}), first: {cause.first}")
        # a refusal is the model's own answer, however many rows get it
        rejected = cause.boundary == "model" and not cause.text.startswith((REFUSED, FILTERED))
        if rejected and n > MOST_SHARE * n_runs and (n > 1 or n == n_runs):
            met = f"{count(n)} of {plural(n_runs, 'run')} met this error"
            lines.append(warning(f"  {met}: it looks like a configuration problem, not like a bad model"))
    return [*lines, *_others(causes, of)]


def _others(causes: Sequence[Cause], of: str = "") -> Iterator[str]:
    if others := causes[MOST_LISTED:]:
        n_runs = sum(len(cause.runs) for cause in others)
        yield f"and {plural(len(others), 'more cause')} ({plural(n_runs, 'run')}{of})"


def summary_lines(results: Results, *, verbose: bool = False, columns: int | None = None) -> list[str]:
    """Return the statistics and the account of the runs, for a terminal with this many `columns`."""
    tables = [
        *statistics_lines(results, verbose=verbose, columns=columns),
        *metric_lines(results, verbose=verbose, columns=columns),
    ]
    return [*tables, *([""] if tables else []), *account_lines(results)]


def remark_lines(results: Results) -> list[str]:
    """Return the causes of unscored runs, and the comparisons in which rows became worse."""
    lines = list(_not_scored(results))
    for against, found in comparisons_of(results).items():
        if found.worse:
            lines += [*_compared(found, results), *changed_rows_lines(against, results)[:1]]
    return lines


def account_lines(results: Results) -> Iterator[str]:
    """Yield the causes of unscored runs, the cost, and the comparisons with other eval runs."""
    yield from _not_scored(results)
    yield from _equal_answers(results)
    took = ", ".join([*_spent(results), seconds(results.duration_ms / 1000)])
    yield dim(took if results.rescored is None else f"the rollouts took {took}")
    if results.cassette is not None:
        yield from _cassette(results, results.cassette)
    if results.judges is not None:  # the line on the rollouts leaves them out
        for name, sums in results.judges.models.items():
            tokens = _with_parts(sums.total_tokens, sums.usage, sums.uncounted, "call")
            retries = ["1 retry" if sums.retries == 1 else f"{count(sums.retries)} retries"] if sums.retries else []
            spent = [plural(sums.calls, "call"), tokens, known_cost(sums.cost_usd, sums.cost_unknown), *retries]
            yield dim(f"judge {name}: {', '.join(spent)}")
    yield from _throttled(results.throttling)
    yield from map(_replica, replica_totals(results.all_records))
    if results.rescored is not None and results.rescored.kept:
        several = len(results.pass_rule.scorers) > 1
        kept = (plural(n, "stored score") + f" of {name}" * several for name, n in results.rescored.kept.items())
        yield f"reused {', '.join(kept)} (code and rows unchanged); --osmosis-rescore recomputes them"
    for against, compared in comparisons_of(results).items():
        yield from _compared(compared, results)
        yield from changed_rows_lines(against, results)


def notice_lines(notices: Iterable[str]) -> list[str]:
    """Return each notice once, with the number of times.

    >>> notice_lines(["a host ended", "the baseline is new", "a host ended"])
    ['a host ended (2 times)', 'the baseline is new']
    """
    return [text if times == 1 else f"{text} ({count(times)} times)" for text, times in Counter(notices).items()]


def _cassette(results: Results, use: CassetteUse) -> Iterator[str]:
    if use.mode == "replay":
        yield dim("tokens and cost are those of the recording, nothing was paid now")
    elif use.replayed:
        tokens, cost = plural(use.replayed_tokens, "token"), use.replayed_cost_usd
        saved = f"{tokens} not spent, cost unknown" if cost is None else f"{tokens}, {money(cost)} not spent"
        yield f"{count(use.replayed)} of {plural(use.requests, 'request')} came from the cassette: {saved}"
    if use.mode != "replay" and use.replayed < use.requests:
        yield dim(f"{plural(use.requests - use.replayed, 'answer')} recorded in {use.path}")
    if use.unrecorded:
        missing, n = sum(use.unrecorded.values()), sum(record.status != "pending" for record in results.all_records)
        reasons = ", ".join(f"{count(number)} {reason}" for reason, number in use.unrecorded.items())
        are = "is" if missing == 1 else "are"
        what = "asked what was not recorded" if use.mode == "replay" else f"{are} not in the cassette: {reasons}"
        yield warning(f"{count(missing)} of {plural(n, 'rollout')} {what}")


def _throttled(throttling: Throttling) -> Iterator[str]:
    for name, held_s in throttling.held_s.items():
        if held_s >= HELD_S:
            table, dot, key = name.partition(".")  # as a config names it: limits of judges begin with "judge."
            limit = f"[{table}] {key}" if dot else f"[execution] {name}"
            yield f"{limit} delayed requests by {seconds(held_s)} in all"
    if throttling.pauses:
        paused = f"{plural(throttling.pauses, 'pause')}, {seconds(throttling.paused_s)} in all"
        least = f"at times {throttling.least_in_flight} of {throttling.limit} rollouts in flight"
        yield f"the server refused requests (429, 503): {paused}; {least}"


def _replica(replica: ReplicaRequests) -> str:
    failed = f", {count(replica.errors)} failed" if replica.errors else ""
    line = f"replica {replica.name}: {plural(replica.requests, 'request')}{failed}"
    if not replica.left_out:
        return dim(line)
    at, error = replica.left_out[0]
    return warning(f"{line}, left out {plural(len(replica.left_out), 'time')}, first at {clock_time(at)}: {error}")


def stored_line(run: str, rolled_out_at: str, n_stored: int, n_gone: int, *, judged: bool) -> str:
    """Return the header's line on the stored rollouts that are scored again; with `judged`, by an LLM judge too."""
    without = f" ({plural(n_gone, 'run')} without one)" if n_gone else ""
    stored = f"{plural(n_stored, 'stored rollout')}{without}"
    return f"from run {run} of {moment(rolled_out_at)}: {stored}, no model is asked{' but the judge' if judged else ''}"


def _spent(results: Results) -> list[str]:
    """Return tokens and cost; "0 tokens" if nothing was rolled out."""
    if not any(record.rolled for record in results.all_records):
        return ["0 tokens"]
    return [tokens_text(results.all_records, results.usage), known_cost(results.cost_usd, n_cost_unknown(results))]


def tokens_text(records: Iterable[RunRecord], usage: Mapping[str, int] = MappingProxyType({})) -> str:
    """Return the known tokens, their parts by `usage`, and the number of rollouts whose tokens are not known."""
    rolled = [record for record in records if record.rolled]
    unknown = sum(record.tokens is None for record in rolled)
    if unknown == len(rolled):
        return "tokens unknown"
    return _with_parts(tokens_of(rolled), usage, unknown, "run")


def _with_parts(n: int, usage: Mapping[str, int], n_unknown: int, of: str) -> str:
    parts = [f"{count(usage[name])} {word}" for name, word in PARTS.items() if usage.get(name)]
    parts += [f"unknown for {plural(n_unknown, of)}"] if n_unknown else []
    return plural(n, "token") + (f" ({', '.join(parts)})" if parts else "")


def known_cost(cost_usd: float | None, n_unknown: int = 0) -> str:
    """Return a cost of which that of `n_unknown` runs is not known, or "cost unknown"."""
    if cost_usd is None:
        return "cost unknown"
    return money(cost_usd) + (f" (unknown for {plural(n_unknown, 'run')})" if n_unknown else "")


def _not_scored(results: Results) -> Iterator[str]:
    """Yield lines on runs that were not scored, or were cut short."""
    yield from cause_lines(results.causes, _n_ended(results.records))
    if results.baseline is not None:
        records = results.baseline.records
        yield from cause_lines(causes_of(records, results.pass_rule), _n_ended(records), of=" of the baseline")
    aside = causes_aside(results.records, results.pass_rule)
    for cause in aside[:MOST_LISTED]:
        zero = f"{plural(len(cause.runs), 'run')} counted as 0 by a function that does not decide"
        yield f"{zero}: {cause.text} (first: {cause.first})"
    yield from _others(aside)
    if skipped := results.count("skipped"):
        yield f"{plural(skipped, 'run')} taken out by the grader"
    if again := sum(record.repeated for record in results.records):
        why = "because the first process ended; what the first time used is not counted"
        yield f"{plural(again, 'run')} rolled out a second time, {why}"
    yield from _bounded(results)
    yield from _truncated(results)


def _n_ended(records: Sequence[RunRecord]) -> int:
    return sum(record.status != "pending" for record in records)


def _bounded(results: Results) -> Iterator[str]:
    """Yield a line on each bound that scored rollouts met, because a low bound can look like a weak model."""
    met: dict[str, list[RunRecord]] = {}
    for record in results.records:
        if record.bound is not None and record.status == "finished":
            met.setdefault(record.bound, []).append(record)
    for bound, records in met.items():
        were, they = ("was", "it") if len(records) == 1 else ("were", "they")
        n_passed, first = sum(map(results.pass_rule.passed, records)), min(record.run for record in records)
        runs = f"{plural(len(records), 'run')} met {bound} and {were} scored as far as {they} got"
        yield f"{runs}, {count(n_passed)} passed (first: {first})"


def _truncated(results: Results) -> Iterator[str]:
    """Yield a line on answers that were cut off: a low token limit can look like a weak model."""
    if cut := results.truncated:
        lost = sum(not results.pass_rule.passed(record) for record in cut)
        bound = results.description.extra.get("sampling", {}).get("max_tokens")
        fix = "set [sampling] max_tokens" if bound is None else f"raise [sampling] max_tokens (now {bound})"
        answers = f"{plural(len(cut), 'answer')} cut off (finish_reason length)"
        yield f"{answers}, {count(lost)} of them did not pass: {fix}"


def _equal_answers(results: Results) -> Iterator[str]:
    """Yield a line if the runs of most rows give equal answers, so that n runs say no more than one."""
    answered, extra = equal_answers(results), results.description.extra
    often = answered.equal >= MOST * answered.rows and answered.lost_equal >= MOST * answered.lost
    if answered.lost >= FEWEST and often and not extra.get("recorded"):  # whose runs only repeat the scoring
        cold = extra.get("sampling", {}).get("temperature") == 0
        cause = "the temperature is 0" if cold else "check that the server samples and honours the seed"
        rows = f"{count(answered.equal)} of {plural(answered.rows, 'row')}"
        yield f"{rows} gave {results.description.n} equal answers, so pass@k says no more than pass@1: {cause}"


def last_run_line(last: PublishedHead) -> str:
    """Return what the last run of the plan took, for the header."""
    found, spent = last.summary, last.summary.judges
    judges = f", judges {money(spent.cost_usd)}" if spent is not None and spent.cost_usd else ""
    rollouts, tokens = plural(found.total_runs, "rollout"), plural(found.total_tokens, "token")
    cost, took = known_cost(found.cost_usd, found.cost_unknown), seconds(found.total_duration_ms / 1000)
    return f"last eval run ({moment(last.provenance['started_at'])}): {rollouts}, {tokens}, {cost}{judges}, {took}"


def _compared(found: Compared, results: Results) -> list[str]:
    """Return the numbers of rows that changed, with p if chance could have changed them, and the rates."""
    changes = better_and_worse(found.better, found.worse)
    any_change = changes if found.better + found.worse else "no row changed"
    if isinstance(found, Rescored):
        return [f"against the previous verdicts ({found.previous}): {any_change}"] if found.rows else []
    when = f" ({moment(found.started_at)})" if found.started_at is not None else ""
    if isinstance(found, LastRun):
        left_out = f"; {plural(found.unmatched, 'row')} not compared" if found.unmatched else ""
        if found.better + found.worse and found.p_value is not None:
            cause = "may be chance" if found.p_value >= ALPHA else "unlikely to be chance"
            any_change += f"; {cause} (p {p_value(found.p_value)})"
        return [f"against the last eval run{when}: {any_change}{left_out}"]
    counts = {"changed": found.changed, "added": found.added, "removed": found.removed}
    left_out = rows_left_out({**counts, "not measured": found.unmeasured})
    left_out = left_out and f"; {left_out}"
    head = f"against the baseline {found.baseline}{when}: "
    interval, p, p_adjusted = found.difference_interval, found.p_value, found.p_adjusted
    if found.difference is None or interval is None or p is None or p_adjusted is None:
        return [f"{head}not measured: {nothing_text(found, results.baseline_stopped)}{left_out}"]
    test = f"p {p_value(p)}, {found.test}"
    if found.evals_compared > 1:
        test += f"; as one of {found.evals_compared} evals p {p_value(p_adjusted)}, Holm"
    rules = [verdict.rule for verdict in results.verdicts if verdict.rule is not None and verdict.rule.is_regression]
    meaning = meaning_text(found, -rules[0].minimum if rules else 0.0)
    change = f"{difference(found.difference)}, 95% interval {interval_text(interval, difference)}"
    return [
        f"{head}{rates_text(found)}{left_out}",
        f"  {change}; {changes}: {meaning} ({test})",
        *(f"  the baseline differs in {setting}" for setting in found.differs),
    ]


# -- the verdict ----------------------------------------------------------------------------------------

WORST_ROWS = 5


def verdict_lines(results: Results) -> list[str]:
    """Return why the eval stopped, its pass rate and its gates."""
    return [*rate_lines(results), *_gates(results, results.verdicts)]


def short_verdict_lines(results: Results) -> list[str]:
    """Return what an eval run came to and nothing else: why it stopped, its pass rate, its gates and what failed."""
    return [*_stop(results), _pass_rate(results), *_gates(results, results.verdicts, power=False, indent="")]


def worst_rows_lines(results: Results) -> list[str]:
    """Return the rows that kept gates from holding, once if several gates have the same."""
    return list(dict.fromkeys(line for verdict in results.verdicts for line in _worst_rows(results, verdict)))


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
    use = results.cassette if results.is_replay else None
    replayed = [] if use is None else [warning(f"replayed from {use.path}: no model was asked")]
    return [*_missing(results), *replayed]


def _missing(results: Results) -> list[str]:
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


_DECIDES = {"all": "all functions must pass", "any": "one function is enough"}


def _pass_rate(results: Results) -> str:
    overall, pass_rule = results.overall, results.pass_rule
    rate = _rate(results, overall, results.passed)
    if not overall.n_measured:
        return rate
    if len(pass_rule.scorers) > 1:
        decide = pass_rule.decide
        decided = _DECIDES.get(decide, f"{decide} decides")
        rate = f"{rate[:-1]}; {decided})" if rate.endswith(")") else f"{rate} ({decided})"
    if not results.is_fragment and (interval := overall.pass_rate_interval) is not None:
        rate += f"; {interval.level:.0%} interval {interval_text(interval)}"
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


def _gates(results: Results, verdicts: Sequence[Verdict], *, power: bool = True, indent: str = "  ") -> list[str]:
    lines: list[str] = []
    for verdict in verdicts:
        rows = [line for row in _worst_rows(results, verdict) if (line := f"{indent}{row}") not in lines]
        lines += [_gate(verdict), *rows, *(_power(verdict) if power else [])]
    return lines


def _gate(verdict: Verdict) -> str:
    return joined(f"gate {verdict.title}: ", state_text(verdict), finding_text(verdict))


def _power(verdict: Verdict) -> Iterator[str]:
    """Yield a line if a gate would hardly notice what it is for."""
    rule, power, state = verdict.rule, verdict.power, verdict.state
    if state in ("holds", "fails") and rule is not None and power is not None and power.is_low:
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
    rows = f"worst rows: {listed((text for _, _, text in worst), WORST_ROWS)}"
    show = "" if results.is_merged else f"; {show_command(Path(results.provenance['run_dir']), worst[0][1])}"
    return [rows + show]
