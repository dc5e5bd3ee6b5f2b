"""A call ends soon: 19 of 20 within `max_ms`, and no pattern explodes on an answer that repeats itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pytest_osmosis.lab.bench import NO_INPUT, Bench
from pytest_osmosis.lab.calls import Input, Outcome, Scored
from pytest_osmosis.lab.findings import Finding, Verdict

CALLS = 40
ROUNDS = 3
LIMIT_S = 1.0
SIZES = (24, 32, 64, 256, 1024, 3072)
"""Lengths of repetition. An exponential pattern is over the limit at the second, a cubic one at the fifth."""
UNITS = ("1", "a", " ", "\n", ".", ",", "-", "(", "{", '"', "#", "*", "a ", "1,", "1.", "0 ", "<a>", "x=1 ", "aA1_")
ENDINGS = ("", "!", "\x00")


def probe(bench: Bench) -> Verdict:
    """Times right answers, then answers that repeat themselves ever longer."""
    fitting = bench.examples.fitting
    if not fitting:
        return Verdict(unmeasured=NO_INPUT)
    findings = [*_usual(bench, fitting[0]), *_growing(bench, fitting[0])]
    return Verdict(tuple(findings))


def _usual(bench: Bench, given: Input) -> Iterator[Finding]:
    limit_ms = bench.target.declaration.max_ms
    if limit_ms is None:
        return
    best = min(_p95_ms(bench, given) for _ in range(ROUNDS))  # the machine may be busy with something else
    if best > limit_ms:
        seen = f"{given.shown(bench.target)}: 19 of 20 calls take up to {best:.3g} ms, max_ms is {limit_ms:g}"
        fix = "compile patterns and load things once, outside the function, or declare another max_ms"
        yield Finding("slow", "it takes longer than it may", seen, fix)


def _p95_ms(bench: Bench, given: Input) -> float:
    times = sorted(bench.ask(given).seconds for _ in range(CALLS))
    return times[int(len(times) * 0.95)] * 1000


def _growing(bench: Bench, fit: Input) -> Iterator[Finding]:
    """The shortest answer that takes too long, twice."""
    inputs = [given for size in SIZES for unit in UNITS for given in _repeating(fit, unit, size)]
    end = time.monotonic() + bench.budget_s
    for given in inputs:
        outcome = bench.ask(given, cpu_s=LIMIT_S)
        if outcome.kind == "slow" and bench.ask(given, cpu_s=LIMIT_S).kind == "slow":
            yield _explodes(bench, given, outcome)
            return
        if time.monotonic() > end:  # every call takes long, whatever the answer
            bench.cut_short = True
            return


def _repeating(fit: Input, unit: str, size: int) -> Iterator[Input]:
    body = unit * (size // len(unit) or 1)
    right, truth = fit.text(), str(fit.ground_truth)
    head = right.partition(truth)[0] if truth in right else ""
    for ending in ENDINGS:
        yield fit.answering(body + ending)
        if head:
            yield fit.answering(head + body + ending)


def _explodes(bench: Bench, given: Input, outcome: Outcome) -> Finding:
    fix = (
        "a pattern backtracks: let no two repetitions that match the same text follow or hold each other "
        "(such as (a+)+), or look at the last 300 characters only"
    )
    what = "an answer that repeats itself takes it too long"
    return Finding("explodes", what, Scored(given, outcome).seen(bench.target), fix)
