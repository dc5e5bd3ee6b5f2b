"""The arguments are as they were after a call: others get the same row and the same conversation."""

from __future__ import annotations

from dataclasses import replace

from pytest_osmosis.lab.bench import NO_INPUT, Bench
from pytest_osmosis.lab.calls import MISSING, PROMPT, Input
from pytest_osmosis.lab.findings import Finding, Verdict

ROW = {"user_prompt": PROMPT, "split": "train", "tags": ["a", "b"], "source": {"page": 1}}
"""What stands beside an answer, where no case says it."""


def probe(bench: Bench) -> Verdict:
    """Calls with right and wrong answers, and a row beside them."""
    fitting = bench.examples.fitting
    if not fitting:
        return Verdict(unmeasured=NO_INPUT)
    inputs = [given for fit in fitting[:4] for given in (fit, fit.answering("I do not know."), fit.answering(""))]
    asked = bench.all_scored(_with_row(given) for given in inputs)
    changed = [scored for scored in asked if scored.outcome.mutated]
    if not changed:
        return Verdict()
    shortest = min(changed, key=lambda scored: len(scored.seen(bench.target)))
    name = shortest.outcome.mutated
    fix = f"work on a copy: {name} = copy.deepcopy({name}), and do not use pop(), append() or item assignment on it"
    return Verdict((Finding("mutation", f"it changes {name}", shortest.seen(bench.target), fix),))


def _with_row(given: Input) -> Input:
    if given.extra is MISSING or not given.extra:
        return replace(given, extra={**ROW, "ground_truth": given.ground_truth})
    return given
