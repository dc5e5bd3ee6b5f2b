"""The contract of a reward function: its signature, and the behaviour that every caller may expect.

A failure would break a training run or an eval: a required argument that no caller passes, a result that is not a
finite number, an error deep inside if `extra_info` or the ground truth is empty. Refusing such input clearly, with a
ValueError or a `raise` of its own, is fine. A note concerns something that the function did not promise, like
accepting None for `ground_truth: str`.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from pytest_osmosis.addons.lab.calls import (
    MISSING,
    NEVER_THE_INPUT,
    CallInput,
    FindingLevel,
    LabResult,
    RewardFinding,
    ScoredCall,
    call,
)
from pytest_osmosis.addons.lab.probe_context import truths
from pytest_osmosis.addons.lab.target import ARGUMENTS, Target

ADD_A_CASE = "add a case, so that its inputs are known: @osmosis_reward(cases=[(solution_str, ground_truth, expect)])"


def check(target: Target, case_inputs: Sequence[CallInput] = ()) -> LabResult:
    """Check the contract; `case_inputs` are the inputs of the function's cases, best first."""
    findings = list(_signature(target))
    if findings:
        return LabResult(tuple(findings))
    first = _first_score(target, case_inputs)
    if first.outcome.kind != "score":
        return _never_scores(target, first, has_cases=bool(case_inputs))
    returned = first.outcome.returned
    if target.declaration.only_float and not first.outcome.is_float:
        fix = "return float(...): Osmosis' own decorator refuses it"
        findings.append(RewardFinding("only-float", f"it returns {returned}", first.shown(target), fix, level="note"))
    for variant in _variants(target, first.input):
        call = _scored(target, variant.input)
        if call.outcome.kind == "raised":
            problem = f"it breaks with {variant.name}"
            findings.append(RewardFinding(variant.code, problem, call.shown(target), variant.fix, variant.level))
        elif call.outcome.kind == "not_a_score":
            findings.append(not_a_number(target, call))
    return LabResult(tuple(findings))


def _signature(target: Target) -> Iterator[RewardFinding]:
    definition = f"def {target.name}{inspect.signature(target.function)}"
    if target.mode is None:
        yield RewardFinding(
            "signature",
            "its first parameter is neither solution_str nor messages",
            definition,
            "name it solution_str (it gets the last answer's text) or messages (it gets the whole conversation)",
        )
        return
    arguments = ARGUMENTS[target.mode]
    for name, parameter in target.parameters.items():
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY:
            fix = "drop the /: arguments come by name"
            yield RewardFinding("signature", f"{name} is positional-only", definition, fix)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and required:
            if name not in arguments:
                fix = f"give {name} a default; callers pass {', '.join(arguments)}"
                yield RewardFinding("signature", f"{name} has no default, and no caller passes it", definition, fix)
            elif name == "extra_info":
                fix = "write extra_info: dict | None = None"
                yield RewardFinding("signature", "extra_info has no default", definition, fix)


def _first_score(target: Target, case_inputs: Sequence[CallInput]) -> ScoredCall:
    """Return the first call that returns a score, else the first call."""
    inputs = [
        *(call_input for call_input in case_inputs if target.mode == "full" or call_input.messages is None),
        *(CallInput(answer=truth, ground_truth=truth, extra={}) for truth, _ in truths(target)),
    ]
    first = _scored(target, inputs[0])
    others = (_scored(target, call_input) for call_input in inputs[1:])
    return next((call for call in itertools.chain([first], others) if call.outcome.kind == "score"), first)


def _never_scores(target: Target, first: ScoredCall, *, has_cases: bool) -> LabResult:
    """Return a failure if the function is to blame; otherwise no suitable input is known, so nothing is measured."""
    example, problem = first.shown(target), "no call that was tried returned a score"
    if first.outcome.kind == "not_a_score":
        return LabResult((not_a_number(target, first),))
    if _reads_extra(target, first.input):
        name = ARGUMENTS[target.mode or "simple"][2]
        fix = f"read it with {name}.get(...), or raise a ValueError that names the missing key"
        return LabResult((RewardFinding("extra-info", f"it breaks with an empty {name}", example, fix),))
    if has_cases or any(first.outcome.text.startswith(f"raised {name}") for name in NEVER_THE_INPUT):
        return LabResult((RewardFinding("no-score", problem, example, "correct the error, or the case"),))
    return LabResult(unmeasured=f"{problem}: {example}; {ADD_A_CASE}")


def _reads_extra(target: Target, call_input: CallInput) -> bool:
    """True if a call breaks because it reads a missing key of extra_info."""
    missed: list[object] = []

    class RecordingDict(dict[str, Any]):
        def __missing__(self, key: object) -> Any:
            missed.append(key)
            raise KeyError(key)

        def __deepcopy__(self, memo: object) -> RecordingDict:
            return self

    call(target, replace(call_input, extra=RecordingDict()))
    return bool(missed)


class _Variant(NamedTuple):
    """An input that a caller may pass, and the finding if the function breaks with it."""

    code: str
    name: str
    input: CallInput
    fix: str
    level: FindingLevel = "failure"


def _variants(target: Target, call_input: CallInput) -> Iterator[_Variant]:
    """Yield variants of an input that gets a score."""
    name = ARGUMENTS[target.mode or "simple"][2]
    extras: list[tuple[str, Any]] = []
    if name in target.parameters or target.mode == "full":
        extras.append((f"an empty {name}", {}))
    if extras and target.mode == "simple":
        extras += [("no extra_info", MISSING), ("extra_info=None", None)]
    fix = f"read it with ({name} or {{}}).get(...), or raise a ValueError that names the missing key"
    for text, extra in extras:
        yield _Variant("extra-info", text, replace(call_input, extra=extra), fix)
    fix = "return a score, or raise a ValueError that says that a row needs a ground truth"
    for answer in ("", "I do not know."):
        without_truth = replace(call_input.answering(answer), ground_truth="")
        yield _Variant("empty-ground-truth", "an empty ground truth", without_truth, fix)
    fix = 'rows without a ground truth pass None: raise ValueError("..."), or return a score'
    level: FindingLevel = "failure" if _accepts_none(target) else "note"
    yield _Variant("no-ground-truth", "ground_truth=None", replace(call_input, ground_truth=None), fix, level)


def _accepts_none(target: Target) -> bool:
    parameter = target.parameters.get("ground_truth")
    annotation = None if parameter is None else parameter.annotation
    if isinstance(annotation, str):
        return "None" in annotation or "Optional" in annotation
    return type(None) in get_args(annotation)


def not_a_number(target: Target, call: ScoredCall) -> RewardFinding:
    """Return the finding for a function that returned something else than a finite number."""
    if call.outcome.description.startswith("must return a finite number"):
        problem, fix = "it does not return a finite number", "return a finite float; look for a division by zero"
    else:
        problem, fix = "it does not return a number", "return a float on every path"
    return RewardFinding("not-a-number", problem, call.shown(target), fix)


def _scored(target: Target, call_input: CallInput) -> ScoredCall:
    return ScoredCall(call_input, call(target, call_input))
