"""Where a reward function is examined: its child process, the examples found for it, and the probes by name."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from pytest_osmosis.errors import CodeError
from pytest_osmosis.lab.calls import Input, Outcome, Scored, to_json
from pytest_osmosis.lab.examples import Examples, find
from pytest_osmosis.lab.findings import Finding, Verdict
from pytest_osmosis.lab.process import CPU_S, Child, Circumstances
from pytest_osmosis.lab.target import Target

BUDGET_S = 10.0
"""What a probe may spend: slow functions are called less often, and that is said."""
MOST_DEATHS = 5

NO_EXAMPLE = (
    "no answer was found that scores more than a wrong one, so nothing can be said; give a case: "
    "@osmosis_reward(cases=[(solution_str, ground_truth, expect), ...])"
)
NO_INPUT = "every call that was tried raised, so nothing can be said; give a case: @osmosis_reward(cases=[...])"


class Bench:
    """One function under examination. `known` are the inputs of its cases, `budget_s` is what a probe may spend.

    `cut_short` is True once a probe has left out calls that it had no time for.
    """

    def __init__(self, target: Target, known: Sequence[Input] = (), budget_s: float = BUDGET_S) -> None:
        self.target = target
        self.budget_s = budget_s
        self.cut_short = False
        self._known = [given for given in known if _is_plain(given)]
        self._child = Child(target)
        self._deaths = 0
        self.deadly: Scored | None = None

    @cached_property
    def examples(self) -> Examples:
        """Answers that it takes for right, and others."""
        return find(self.target, self._within(self.budget_s), self._known)

    def ask(self, given: Input, *, watch: bool = False, cpu_s: float = CPU_S) -> Outcome:
        """What comes of a call in the child process."""
        if self._deaths >= MOST_DEATHS:
            return Outcome("not_called", text=f"was not called: its process has ended {self._deaths} times")
        outcome = self._child.ask(given, watch=watch, cpu_s=cpu_s)
        if outcome.kind == "died":
            self._deaths += 1
            self.deadly = Scored(given, outcome)
        return outcome

    def scored(self, given: Input) -> Scored:
        """The same, with its input."""
        return Scored(given, self.ask(given))

    def all_scored(self, inputs: Iterable[Input]) -> list[Scored]:
        """The same for several, as far as there is time."""
        ask = self._within(self.budget_s)
        return [Scored(given, ask(given)) for given in inputs]

    def _within(self, seconds: float) -> Callable[[Input], Outcome]:
        """`ask`, until so much time has passed."""
        end = time.monotonic() + seconds

        def ask(given: Input) -> Outcome:
            if time.monotonic() > end:
                self.cut_short = True
                return Outcome("not_called", text="was not called: there was no time left")
            return self.ask(given)

        return ask

    def among(self, circumstances: Sequence[Circumstances]) -> list[Child]:
        """Processes of their own, begun at once; the caller closes them."""
        children = [Child(self.target, found) for found in circumstances]
        for child in children:
            child.begin()
        return children

    def affordable(self, inputs: Sequence[Input], calls: int) -> list[Input]:
        """As many of the inputs as may be called so often."""
        tried = inputs[:5]
        begun = time.monotonic()
        for given in tried:
            self.ask(given)
        each = (time.monotonic() - begun) / max(1, len(tried))
        n = max(2, int(self.budget_s / (each * calls + 1e-9)))
        self.cut_short = self.cut_short or n < len(inputs)
        return list(inputs[:n])

    def close(self) -> None:
        """End the child process."""
        self._child.close()


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


def _is_plain(given: Input) -> bool:
    """True where an input can be given to another process."""
    try:
        json.dumps(to_json(given))
    except (TypeError, ValueError):
        return False
    return True
