"""Results -> the summary table, a list of lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.statistics import interval_text, statistics_lines
from pytest_osmosis.results.results import Results, Side, Throttling, tokens_of
from pytest_osmosis.stats import POWER, Interval
from pytest_osmosis.text.numbers import count, difference, moment, money, p_value, plural, score, seconds
from pytest_osmosis.verdicts.comparison import Comparison, meaning_text, nothing_text
from pytest_osmosis.verdicts.gates import DROP, Verdict
from pytest_osmosis.verdicts.previous_run import UNMEASURED, Flips, LastRun


def summary_lines(results: Results, *, verbose: bool = False, columns: int | None = None) -> list[str]:
    """The table of one eval run, in `columns` where they are few, what became of its runs, and its gates."""
    return [
        *statistics_lines(results, verbose=verbose, columns=columns),
        "",
        *account_lines(results),
        *(line for verdict in results.verdicts for line in _gate(verdict)),
    ]


def _gate(verdict: Verdict) -> list[str]:
    """A verdict, and how likely it is to notice a loss where that is not likely."""
    lines = [f"gate {verdict.title}: {verdict.state.upper()}: {verdict.text}"]
    decided = verdict.state in ("holds", "fails")
    if decided and verdict.rule is not None and verdict.power is not None and verdict.power.chance < POWER:
        chance, n_rows = verdict.power
        least = verdict.rule.minimum - DROP
        truth = (
            f"loss of {-least:.12g}"
            if verdict.rule.metric == "max_regression"
            else f"{verdict.rule.name} of {least:.12g}"
        )
        lines.append(
            f"  low power: a true {truth} fails it with a chance of "
            f"{chance:.2f}; {plural(n_rows, 'row')} would make that {POWER:g}"
        )
    return lines


def account_lines(results: Results) -> list[str]:
    """How many passed, what became of the others, and what it took."""
    return [
        *_smoke(results),
        _pass_rate(results),
        *(_side(results, results.side) if results.side is not None else []),
        *_not_scored(results),
        *_truncated(results),
        *_equal_answers(results),
        _took(results),
        *_throttled(results.throttling),
        *_redecided(results),
        *([flips_line(results.flips)] if results.flips is not None else []),
        *(comparison_lines(results.comparison) if results.comparison is not None else []),
    ]


def notice_lines(notices: Iterable[str]) -> list[str]:
    """What was noticed while an eval ran, each once.

    >>> notice_lines(["a host ended", "the baseline is new", "a host ended"])
    ['a host ended (2 times)', 'the baseline is new']
    """
    return [text if times == 1 else f"{text} ({count(times)} times)" for text, times in Counter(notices).items()]


def _took(results: Results) -> str:
    """Tokens, money and time; of stored rollouts what they took then."""
    took = ", ".join([*_spent(results), seconds(results.duration_ms / 1000)])
    return took if results.redecided is None else f"the rollouts took {took}"


def _throttled(throttling: Throttling) -> list[str]:
    """What kept it from being faster, where something did."""
    lines = [
        f"{name} held requests for {seconds(held_s)}" for name, held_s in throttling.held_s.items() if held_s >= HELD_S
    ]
    if throttling.pauses:
        lines.append(
            f"the server refused requests (429, 503): {plural(throttling.pauses, 'pause')}, "
            f"{seconds(throttling.paused_s)} in all, and down to {throttling.least_in_flight} of {throttling.limit} "
            "in flight"
        )
    return lines


HELD_S = 0.1
"""A limit that held requests for less did not matter."""


def _redecided(results: Results) -> list[str]:
    """Which scores are of before, and which rows the new verdicts turned."""
    again = results.redecided
    if again is None:
        return []
    lines = []
    if again.kept:
        kept = ", ".join(f"{plural(n, 'score')} of {name}" for name, n in again.kept.items())
        lines.append(f"kept, as code and row are the same: {kept}; --osmosis-rescore calls every function again")
    if again.n_rows:
        found = f"no row of {count(again.n_rows)} changed"
        if again.better or again.worse:
            found = f"+{count(again.better)} -{count(again.worse)} of {plural(again.n_rows, 'row')}"
        lines.append(f"against the verdicts before ({again.previous}): {found}")
    return lines


def stored_line(run: str, rolled_out_at: str, n_stored: int, n_gone: int) -> str:
    """Where the rollouts are from that are decided again."""
    without = f" ({plural(n_gone, 'run')} without one)" if n_gone else ""
    stored = f"{plural(n_stored, 'rollout')} stored{without}"
    return f"from run {run} of {moment(rolled_out_at)}: {stored}, no model is asked"


def _smoke(results: Results) -> list[str]:
    """How little was tried, where that was a smoke test."""
    if results.smoke_of is None:
        return []
    return [f"smoke: {count(len(results.records))} of {plural(results.smoke_of, 'run')}, scores did not decide"]


def _pass_rate(results: Results) -> str:
    overall, passed = results.overall, results.passed
    if not overall.n_measured:
        return "pass rate -: no run was measured"
    rate = f"pass rate {score(overall.pass_rate)}: {count(passed)} of {plural(overall.n_runs, 'run')} passed"
    if unmeasured := overall.n_runs - overall.n_measured:
        rate += f", {count(unmeasured)} not measured and counted as not passed"
    if len(results.judging.scorers) > 1:
        decide = results.judging.decide
        rate += f" (decided by {decide})" if decide not in ("all", "any") else f" ({decide} of the functions)"
    if (interval := overall.pass_rate_interval) is not None:
        rate += f"; {interval.level:.0%} interval {interval_text(interval)} ({interval.method})"
    return rate


def _side(results: Results, side: Side) -> list[str]:
    """What the baseline's model came to, and how many of its runs say nothing."""
    overall, judging = side.overall, results.judging
    pending = sum(record.status == "pending" for record in side.records)
    never = f"{plural(pending, 'run')} of the baseline pending"
    if not overall.n_measured:
        return [f"baseline {side.model}: pass rate -: no run was measured", *([never] if pending else [])]
    passed = sum(map(judging.passed, side.records))
    said = f"baseline {side.model}: pass rate {score(overall.pass_rate)}: {count(passed)} of "
    said += f"{plural(overall.n_runs, 'run')} passed"
    if unmeasured := overall.n_runs - overall.n_measured:
        said += f", {count(unmeasured)} not measured and counted as not passed"
    cost = results.cost_of(side.records)
    said += f"; {_tokens(side.records)}, {'cost unknown' if cost is None else money(cost)}"
    return [said, *([never] if pending else [])]


def _spent(results: Results) -> list[str]:
    """Tokens and money, of which nothing is unknown where nothing was rolled out."""
    if not any(record.rolled for record in results.all_records):
        return ["0 tokens"]
    return [_tokens(results.all_records, results.usage), _known_cost(results.cost_usd, results.n_cost_unknown)]


def _tokens(records: Iterable[RunRecord], usage: Mapping[str, int] = MappingProxyType({})) -> str:
    """The tokens that servers counted, by what they were of (`usage`), and of how many rollouts they did not."""
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
"""Counts of tokens by name, and what they are called."""


def _known_cost(cost_usd: float | None, n_unknown: int) -> str:
    """A cost, as far as it is known."""
    if cost_usd is None:
        return "cost unknown"
    return money(cost_usd) + (f" (unknown for {plural(n_unknown, 'run')})" if n_unknown else "")


def _not_scored(results: Results) -> list[str]:
    """What could not be scored, by cause; nothing where all was."""
    lines = [
        f"{plural(n, 'run')} failed at boundary {boundary} ({EFFECT.get(boundary, 'counted as 0')})"
        for boundary, n in sorted(results.boundaries().items())
    ]
    lines += [
        f"{name} gave {plural(n, 'run')} no score (counted as 0); it does not decide"
        for name, n in _unscored_aside(results).items()
    ]
    if skipped := results.count("skipped"):
        lines.append(f"{plural(skipped, 'run')} taken out by the grader")
    if pending := results.count("pending"):
        lines += _pending(results, pending)
    if again := sum(record.attempt > 1 for record in results.records):
        lines.append(f"{plural(again, 'run')} rolled out a second time, as the first time the engine host ended")
    return lines


def _pending(results: Results, n: int) -> list[str]:
    """What never ran, and what that means for the numbers."""
    if not results.decided:
        return [f"{plural(n, 'run')} pending: {results.stopped or 'never ran'}"]
    return [
        f"{count(n)} of {plural(len(results.records), 'run')} not needed: {results.stopped}",
        "stopped early: estimates cover only what ran",
    ]


EFFECT = dict.fromkeys(UNMEASURED, "not measured, counted as 0")
"""What a run without a score does to the numbers, where it is nobody's answer."""


def _truncated(results: Results) -> list[str]:
    """Answers that were cut off: what looks like a weak model may be a short bound."""
    cut = results.truncated
    if not cut:
        return []
    lost = sum(not results.judging.passed(record) for record in cut)
    bound = results.subject.extra.get("sampling", {}).get("max_tokens")
    fix = "set [sampling] max_tokens" if bound is None else f"raise [sampling] max_tokens, which is {bound}"
    return [f"{plural(len(cut), 'answer')} cut off (finish_reason length), {count(lost)} of them did not pass: {fix}"]


def _equal_answers(results: Results) -> list[str]:
    """Rows whose runs all say the same: n of them tell no more than one."""
    found, n = results.answered_rows, results.subject.n
    if found.lost < FEWEST or found.equal < MOST * found.rows or found.lost_equal < MOST * found.lost:
        return []
    sampling = results.subject.extra.get("sampling", {})
    cause = "the temperature is 0" if sampling.get("temperature") == 0 else "does the server sample, and heed the seed?"
    rows = f"{count(found.equal)} of {plural(found.rows, 'row')}"
    return [f"{rows} gave {n} equal answers, so pass@k says no more than pass@1: {cause}"]


FEWEST = 3
"""With fewer rows that did not pass, that their answers are equal says little."""
MOST = 0.9
"""Rows of equal answers are told of from this share on, of all rows and of those that did not pass."""


def _unscored_aside(results: Results) -> dict[str, int]:
    """How many finished runs got no score from each function that does not decide."""
    finished = [record for record in results.records if record.status == "finished"]
    aside = [name for name in results.judging.scorers if name not in results.judging.deciding]
    counts = {name: sum(name not in record.scores for record in finished) for name in aside}
    return {name: n for name, n in counts.items() if n}


def last_run_line(last: LastRun) -> str:
    """What the last run of the plan took, before the next one is paid for."""
    cost = _known_cost(last.cost_usd, last.n_cost_unknown)
    took = f"{plural(last.n_runs, 'rollout')}, {plural(last.total_tokens, 'token')}, {cost}, {seconds(last.duration_s)}"
    return f"last run ({moment(last.started_at)}): {took}"


def comparison_lines(found: Comparison) -> list[str]:
    """What became of the pass rate against the baseline, which rows could not be compared, and what else differs."""
    when = f" ({moment(found.started_at)})" if found.started_at is not None else ""
    head = f"against the baseline {found.name}{when}: "
    if found.paired is None:
        return [f"{head}not measured: {nothing_text(found)}{_uncompared(found)}"]
    paired = found.paired
    said = f"{head}pass rate {score(found.new_rate)}, there {score(found.old_rate)} over {plural(paired.n_rows, 'row')}"
    where = f", 95% interval {_signed(paired.interval)}" if paired.interval is not None else ""
    p = f"p {p_value(paired.p)} ({paired.test})"
    if found.n_evals > 1:
        p += f", {p_value(found.p).removeprefix('= ')} as one of {found.n_evals} evals (Holm)"
    rows = f"+{count(paired.better)} -{count(paired.worse)} rows"
    return [
        said + _uncompared(found),
        f"  {difference(paired.difference)}{where}; {rows}, {p}: {meaning_text(found)}",
        *(f"  the baseline differs in {one}" for one in found.differs),
    ]


def _signed(interval: Interval) -> str:
    return f"{difference(interval.low)} to {difference(interval.high)}"


def _uncompared(found: Comparison) -> str:
    """The rows that were left out."""
    rows = found.matched
    counts = {"changed": rows.changed, "added": rows.added, "removed": rows.removed, "not measured": found.n_unmeasured}
    said = [f"{count(n)} {what}" for what, n in counts.items() if n]
    return f"; rows left out: {', '.join(said)}" if said else ""


def flips_line(flips: Flips) -> str:
    """What became of the rows since the last run."""
    rows = plural(flips.n_rows, "row")
    found = f"no row of {flips.n_rows:,} changed"
    if flips.better or flips.worse:
        verdict = "noise" if flips.is_noise else "better" if flips.difference > 0 else "worse"
        found = f"+{count(flips.better)} -{count(flips.worse)} of {rows}, p {p_value(flips.p)} ({verdict})"
    unmatched = f"; {plural(flips.n_unmatched, 'row')} not compared" if flips.n_unmatched else ""
    return f"against the last run ({moment(flips.started_at)}): {found}{unmatched}"
