"""Where a reward function is examined: its child process, and the examples found for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from pytest_osmosis.lab.calls import Input, Outcome, Scored, to_json
from pytest_osmosis.lab.examples import Examples, find
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


def _is_plain(given: Input) -> bool:
    """True where an input can be given to another process."""
    try:
        json.dumps(to_json(given))
    except (TypeError, ValueError):
        return False
    return True
