"""The probes; each looks for one kind of bug by calling a reward function."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_osmosis.errors import CodeError
from pytest_osmosis.lab.findings import LabResult, RewardFinding
from pytest_osmosis.lab.probe_context import ProbeContext
from pytest_osmosis.lab.probes import (
    broad_handlers,
    determinism,
    fuzz,
    leaks,
    letter_case,
    mutation,
    robustness,
    scores,
    speed,
)

PROBES: Mapping[str, Callable[[ProbeContext], LabResult]] = {
    "determinism": determinism.probe,
    "range": scores.probe,
    "mutation": mutation.probe,
    "robustness": robustness.probe,
    "fuzz": fuzz.probe,
    "speed": speed.probe,
    "leaks": leaks.probe,
    "swallowed": broad_handlers.probe,
    "case": letter_case.probe,
}
"""The probes by name."""


def examine(context: ProbeContext, name: str) -> LabResult:
    """Run a probe. A file that cannot be imported again, a crash and a lack of time are findings too."""
    context.cut_short = False
    try:
        result = PROBES[name](context)
    except CodeError as error:
        context.close()
        fix = "let the file only define things when it is imported, so that it can be imported anywhere"
        return LabResult((RewardFinding("import", "it cannot be loaded again", str(error), fix),))
    if context.fatal_call is not None and not result.failures():
        fix = "raise an exception or return a score; never end the process"
        return LabResult(
            (RewardFinding("crash", "it ends its process", context.fatal_call.shown(context.target), fix),)
        )
    if context.cut_short and not result.findings and not result.unmeasured:
        example = f"a probe has {context.budget_s:g} s; the calls after that were left out"
        fix = "make the function faster, or accept an incomplete check"
        finding = RewardFinding("cut-short", "it is too slow for a complete check", example, fix, level="note")
        return LabResult((finding,))
    return result
