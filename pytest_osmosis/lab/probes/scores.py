"""Every score is a finite number, and lies in the declared range."""

from __future__ import annotations

from pytest_osmosis.lab.bench import NO_INPUT, Bench
from pytest_osmosis.lab.calls import Scored
from pytest_osmosis.lab.findings import Finding, Verdict
from pytest_osmosis.lab.target import Target

ANSWERS = ("", " ", "\n", ".", "0", "-1", "1e308", "I do not know.")


def probe(bench: Bench) -> Verdict:
    """Looks at everything that was tried, and at answers with next to nothing in them."""
    fitting = bench.examples.fitting
    if not fitting:
        return Verdict(unmeasured=NO_INPUT)
    asked = bench.all_scored(given.answering(answer) for given in fitting[:4] for answer in ANSWERS)
    faults = [found for scored in (*asked, *bench.examples.tried) if (found := fault(bench.target, scored))]
    shortest: dict[str, Finding] = {}
    for found in sorted(faults, key=lambda found: len(found.seen)):
        shortest.setdefault(found.code, found)
    return Verdict(tuple(shortest.values()))


def fault(target: Target, scored: Scored) -> Finding | None:
    """What is wrong with a score, None where it is one within its range."""
    outcome = scored.outcome
    if outcome.kind == "not_a_score":
        fix = "return a finite float on every path; look for a division by what may be empty"
        return Finding("not-a-number", "it gives no finite number", scored.seen(target), fix)
    low, high = target.declaration.range
    if outcome.score is None:
        return None
    if (low is not None and outcome.score < low) or (high is not None and outcome.score > high):
        bounds = f"from {'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"
        fix = "limit it with min() and max(), or declare another range"
        return Finding("out-of-range", f"its range is {bounds}", scored.seen(target), fix)
    return None
