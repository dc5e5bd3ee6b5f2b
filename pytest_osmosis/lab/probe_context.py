"""The context in which probes examine a reward function: its child process, its answers, and a time budget."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from pytest_osmosis.lab.answers import Answers, find_answers
from pytest_osmosis.lab.calls import CallInput, CallOutcome, ScoredCall, to_json
from pytest_osmosis.lab.process import CPU_S, LabProcess
from pytest_osmosis.lab.target import Target

BUDGET_S = 10.0
"""Seconds that a probe may take. Slow functions are called less often, and a finding says so."""
MOST_DEATHS = 5

NO_EXAMPLE = (
    "no answer was found that scores more than a wrong one, so nothing can be checked; add a case: "
    "@osmosis_reward(cases=[(solution_str, ground_truth, expect), ...])"
)
NO_INPUT = "every call that was tried raised, so nothing can be checked; add a case: @osmosis_reward(cases=[...])"


class ProbeContext:
    """One function under examination. `case_inputs` are the inputs of its cases, `budget_s` is the time for each probe.

    `cut_short` is True once a probe has left out calls for lack of time. `fatal_call` is the last call that ended the
    process.
    """

    def __init__(self, target: Target, case_inputs: Sequence[CallInput] = (), budget_s: float = BUDGET_S) -> None:
        self.target = target
        self.budget_s = budget_s
        self.cut_short = False
        self._case_inputs = [call_input for call_input in case_inputs if _is_plain(call_input)]
        self._process = LabProcess(target)
        self._deaths = 0
        self.fatal_call: ScoredCall | None = None

    @cached_property
    def answers(self) -> Answers:
        return find_answers(self.target, self._within(self.budget_s), self._case_inputs)

    def call(self, call_input: CallInput, *, watch: bool = False, cpu_s: float = CPU_S) -> CallOutcome:
        if self._deaths >= MOST_DEATHS:
            return CallOutcome("not_called", text=f"was not called, because its process has ended {self._deaths} times")
        outcome = self._process.call(call_input, watch=watch, cpu_s=cpu_s)
        if outcome.kind == "died":
            self._deaths += 1
            self.fatal_call = ScoredCall(call_input, outcome)
        return outcome

    def scored(self, call_input: CallInput) -> ScoredCall:
        return ScoredCall(call_input, self.call(call_input))

    def all_scored(self, inputs: Iterable[CallInput]) -> list[ScoredCall]:
        """Call the function for several inputs, as far as the budget allows."""
        call = self._within(self.budget_s)
        return [ScoredCall(call_input, call(call_input)) for call_input in inputs]

    def _within(self, seconds: float) -> Callable[[CallInput], CallOutcome]:
        """Return a version of `call` that stops calling after `seconds`."""
        end = time.monotonic() + seconds

        def call(call_input: CallInput) -> CallOutcome:
            if time.monotonic() > end:
                self.cut_short = True
                return CallOutcome("not_called", text="was not called, because no time was left")
            return self.call(call_input)

        return call

    def affordable(self, inputs: Sequence[CallInput], calls: int) -> list[CallInput]:
        """Return as many of the inputs as can be called `calls` times within the budget."""
        sample = inputs[:5]
        start = time.monotonic()
        for call_input in sample:
            self.call(call_input)
        call_s = (time.monotonic() - start) / max(1, len(sample))
        n = max(2, int(self.budget_s / (call_s * calls + 1e-9)))
        self.cut_short = self.cut_short or n < len(inputs)
        return list(inputs[:n])

    def close(self) -> None:
        self._process.close()


def _is_plain(call_input: CallInput) -> bool:
    try:
        json.dumps(to_json(call_input))
    except (TypeError, ValueError):
        return False
    return True
