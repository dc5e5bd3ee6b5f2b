"""The probes: each looks for one kind of bug by calling a reward function, and says what it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_osmosis.errors import CodeError
from pytest_osmosis.lab.bench import Bench
from pytest_osmosis.lab.findings import Finding, Verdict

Probe = Callable[[Bench], Verdict]


def probes() -> Mapping[str, Probe]:
    """Every probe by its name."""
    from pytest_osmosis.lab.probes import (
        casing,
        determinism,
        fuzz,
        leaks,
        mutation,
        robustness,
        scores,
        speed,
        swallowed,
    )

    return {
        "determinism": determinism.probe,
        "range": scores.probe,
        "mutation": mutation.probe,
        "robustness": robustness.probe,
        "fuzz": fuzz.probe,
        "speed": speed.probe,
        "leaks": leaks.probe,
        "swallowed": swallowed.probe,
        "case": casing.probe,
    }


NAMES = ("determinism", "range", "mutation", "robustness", "fuzz", "speed", "leaks", "swallowed", "case")


def examine(bench: Bench, name: str) -> Verdict:
    """What a probe says; not to be importable in a process of its own is a finding too."""
    bench.cut_short = False
    try:
        verdict = probes()[name](bench)
    except CodeError as error:
        bench.close()
        fix = "let importing the file do nothing but define things, so that it can be imported anywhere"
        return Verdict((Finding("import", "it cannot be loaded again", str(error), fix),))
    if bench.deadly is not None and not verdict.failures():  # what was asked of it then was not answered
        fix = "raise an exception, or give a score; never end the process"
        return Verdict((Finding("crash", "it ends its process", bench.deadly.seen(bench.target), fix),))
    if bench.cut_short and not verdict.findings and not verdict.unmeasured:
        seen = f"a probe has {bench.budget_s:g} s, and calls that it had no time for were left out"
        fix = "make it faster, or take this probe for half an answer"
        return Verdict((Finding("cut-short", "it is too slow to be looked at whole", seen, fix, level="note"),))
    return verdict
