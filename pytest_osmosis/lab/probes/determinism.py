"""The same call gives the same score: again, in another order, with other hashes, at another time."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.lab.bench import NO_INPUT, Bench
from pytest_osmosis.lab.calls import Input, Outcome
from pytest_osmosis.lab.findings import Finding, Verdict
from pytest_osmosis.lab.process import Child, Circumstances

LATER_S = 397 * 86400 + 5025.5
"""More than a year and some odd seconds, so that years, months, days, hours and fractions differ."""
TIMES = 4
MOST_INPUTS = 40
WORDS = "red green blue yellow black white"


def probe(bench: Bench) -> Verdict:
    """Calls in fresh processes, and compares."""
    inputs = bench.affordable(_inputs(bench), TIMES + 4)
    if not inputs:
        return Verdict(unmeasured=NO_INPUT)
    children = bench.among(
        [
            Circumstances(),
            Circumstances(),
            Circumstances(hash_seed=1),
            Circumstances(hash_seed=2),
            Circumstances(clock_s=LATER_S),
        ]
    )
    try:
        return Verdict(tuple(_compared(bench, inputs, children)))
    finally:
        for child in children:
            child.close()


def _inputs(bench: Bench) -> list[Input]:
    examples = bench.examples
    found = [given for solved in examples.solved for given in (solved.right, solved.wrong)]
    for given in examples.fitting[:6]:
        truth = str(given.ground_truth)
        found += [given.answering(text) for text in (f"41 {truth} 43", f"{WORDS} {truth} {WORDS}", WORDS, truth, "")]
    return found[:MOST_INPUTS]


def _compared(bench: Bench, inputs: Sequence[Input], children: Sequence[Child]) -> list[Finding]:
    base, reverse, *seeds, later = children
    first = [base.ask(given) for given in inputs]
    for _ in range(TIMES - 1):
        again = [base.ask(given) for given in inputs]
        if found := _difference(bench, inputs, first, again, "when it is called again"):
            fix = "give no random numbers, and keep nothing between calls: no globals, no caches that scores depend on"
            return [_finding("not-repeatable", "the same call scores differently when it is called again", found, fix)]
    reversed_order = [reverse.ask(given) for given in reversed(inputs)][::-1]
    if found := _difference(bench, inputs, first, reversed_order, "after other calls"):
        fix = "keep nothing between calls: no globals, no mutable defaults"
        return [_finding("order-dependent", "the score depends on the calls before", found, fix)]
    for seed, child in enumerate(seeds, start=1):
        if found := _difference(
            bench, inputs, first, [child.ask(given) for given in inputs], f"with PYTHONHASHSEED={seed}"
        ):
            fix = "do not depend on the order of a set or on hash(): sort, or use dict.fromkeys"
            return [_finding("hash-dependent", "the score differs from process to process", found, fix)]
    if found := _difference(bench, inputs, first, [later.ask(given) for given in inputs], "a year later"):
        fix = "do not read the clock; give the time in extra_info if it matters"
        return [_finding("time-dependent", "the score depends on the time of the call", found, fix)]
    return []


def _difference(
    bench: Bench, inputs: Sequence[Input], before: Sequence[Outcome], after: Sequence[Outcome], when: str
) -> str:
    """The shortest call whose outcome differs, empty where none does. What was cut off says nothing."""
    differing = [
        (given, one, other)
        for given, one, other in zip(inputs, before, after, strict=True)
        if (one.kind, one.score) != (other.kind, other.score) and not {one.kind, other.kind} & {"slow", "died"}
    ]
    if not differing:
        return ""
    given, one, other = min(differing, key=lambda found: len(found[0].shown(bench.target)))
    return f"{given.shown(bench.target)} {one.said}, {when} {other.said.removeprefix('= ')}"


def _finding(code: str, what: str, seen: str, fix: str) -> Finding:
    return Finding(code, what, seen, fix)
