"""The probes; each looks for one kind of bug by calling a reward function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_osmosis.addons.lab.calls import ScoredCall
from pytest_osmosis.addons.lab.findings import LabResult, RewardFinding
from pytest_osmosis.addons.lab.probe_context import ProbeContext
from pytest_osmosis.addons.lab.probes import determinism, leaks, speed
from pytest_osmosis.addons.lab.probes.robustness import probe_fuzz, probe_range, probe_robustness
from pytest_osmosis.errors import CodeError
from pytest_osmosis.text.numbers import plural

PROBES: Mapping[str, Callable[[ProbeContext], LabResult]] = {
    "determinism": determinism.probe,
    "range": probe_range,
    "robustness": probe_robustness,
    "fuzz": probe_fuzz,
    "speed": speed.probe,
    "leaks": leaks.probe,
}
"""The probes by name."""


def examine(context: ProbeContext, name: str) -> LabResult:
    """Run a probe. A file that cannot be imported again, a crash, a call that does not end are findings too."""
    context.budget.begin()
    fatal_before = context.fatal_call
    try:
        result = PROBES[name](context)
    except CodeError as error:
        context.close()
        fix = "let the file only define things when it is imported, so that it can be imported anywhere"
        return LabResult((RewardFinding("import", "it cannot be loaded again", str(error), fix),))
    fatal = context.fatal_call
    is_to_blame = fatal is not fatal_before or result.unmeasured or (fatal and fatal.outcome.kind == "died")
    if fatal is not None and is_to_blame and not result.failures():
        return LabResult((_fatal(fatal, context),))
    left_out = _left_out(context)
    return result if left_out is None else LabResult((*result.findings, left_out), result.unmeasured)


def _fatal(fatal: ScoredCall, context: ProbeContext) -> RewardFinding:
    example = fatal.shown(context.target)
    if fatal.outcome.kind == "died":
        fix = "raise an exception or return a score; never end the process, and take little memory"
        return RewardFinding("crash", "it takes its process down", example, fix)
    fix = "return a score for every answer; wait for nothing, and limit loops"
    return RewardFinding("hang", "it does not return", example, fix)


def _left_out(context: ProbeContext) -> RewardFinding | None:
    """Return a note of the calls that were left out for lack of time, None if none were."""
    budget = context.budget
    if not budget.left_out and not context.incomplete_answers:
        return None
    left = (
        f"after {budget.seconds:g} s and {plural(budget.made, 'call')}, {plural(budget.left_out, 'call')} were left out"
    )
    example = left if budget.left_out else "an earlier test had no time to look for all answers"
    fix = "make the function faster, or give each test more time: --osmosis-lab-budget=60"
    return RewardFinding("cut-short", "the check is incomplete", example, fix, level="note")
