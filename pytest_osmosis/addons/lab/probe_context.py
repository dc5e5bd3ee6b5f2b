"""The context in which probes examine a reward function: its child process, its answers, and a time budget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

from pytest_osmosis.addons.lab.answers import Answers, find_answers
from pytest_osmosis.addons.lab.calls import CallInput, CallOutcome, ScoredCall, to_json
from pytest_osmosis.addons.lab.process import BUDGET_S, CPU_S, LabProcess, TimeBudget
from pytest_osmosis.addons.lab.target import Target
from pytest_osmosis.errors import CodeError

MOST_ENDS = 5
"""Processes of one function that may end before it is called no more."""

NO_EXAMPLE = (
    "no answer was found that scores more than a wrong one, so nothing can be checked; add a case: "
    "@osmosis_reward(cases=[(solution_str, ground_truth, expect), ...])"
)
NOT_STEADY = "the same call scores differently at another time, so scores cannot be compared: see [lab-determinism]"
NO_INPUT = "every call that was tried raised, so nothing can be checked; add a case: @osmosis_reward(cases=[...])"


class ProbeContext:
    """One function under examination. `case_inputs` are the inputs of its cases, `budget_s` is the time for each test.

    `fatal_call` is the last call after which the process was gone, or that was cut off twice. `incomplete_answers` is
    True if the search for answers had no time to end.
    """

    def __init__(self, target: Target, case_inputs: Sequence[CallInput] = (), budget_s: float = BUDGET_S) -> None:
        self.target = target
        self.budget = TimeBudget(budget_s)
        self.fatal_call: ScoredCall | None = None
        self.incomplete_answers = False
        self._case_inputs = [call_input for call_input in case_inputs if _is_plain(call_input)]
        self._process = LabProcess(target, self.budget)
        self._ends = 0
        self._import_error: CodeError | None = None

    @cached_property
    def answers(self) -> Answers:
        before = self.budget.left_out
        answers = find_answers(self.target, self.call, self._case_inputs)
        self.incomplete_answers = self.budget.left_out > before
        return answers

    def call(self, call_input: CallInput, *, cpu_s: float = CPU_S) -> CallOutcome:
        """Call the function, as `LabProcess.call` does. Raises `CodeError` if its module cannot be imported again."""
        if self._import_error is not None:
            raise self._import_error
        if self._ends >= MOST_ENDS:
            return CallOutcome("not_called", text=f"was not called, because {self._ends} processes have ended")
        try:
            outcome = self._process.call(call_input, cpu_s=cpu_s)
        except CodeError as error:
            self._import_error = error
            raise
        if outcome.kind == "slow" and not outcome.ended and cpu_s >= CPU_S:
            # the first time may have loaded something
            again = self._process.call(call_input, cpu_s=cpu_s)
            if again.kind not in ("slow", "not_called"):
                return again
            self.fatal_call = ScoredCall(call_input, outcome)
        if outcome.ended:
            self._ends += 1
            self.fatal_call = ScoredCall(call_input, outcome)
        return outcome

    def scored(self, call_input: CallInput) -> ScoredCall:
        return ScoredCall(call_input, self.call(call_input))

    def affordable(self, inputs: Sequence[CallInput], calls: int) -> list[CallInput]:
        """Return as many of the inputs as can be called `calls` times in the time that is left."""
        sample = inputs[:5]
        left_s = self.budget.left_s
        for call_input in sample:
            self.call(call_input)
        call_s = (left_s - self.budget.left_s) / max(1, len(sample))
        n = max(2, int(self.budget.left_s / (call_s * calls + 1e-9)))
        self.budget.left_out += calls * max(0, len(inputs) - n)
        return list(inputs[:n])

    def close(self) -> None:
        """End the process. The next call starts another."""
        self._process.close()


def _is_plain(call_input: CallInput) -> bool:
    try:
        json.dumps(to_json(call_input))
    except (TypeError, ValueError):
        return False
    return True
