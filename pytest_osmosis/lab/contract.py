"""The contract of a reward function: its signature, and the behaviour that every caller may expect.

A failure would break a training run or an eval: a required argument that no caller passes, a result that is not a
finite number, an error deep inside if `extra_info` or the ground truth is empty. Refusing such input clearly, with a
ValueError or a `raise` of its own, is fine. A note concerns something that the function did not promise, like
accepting None for `ground_truth: str`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from pytest_osmosis.lab.answers import truths
from pytest_osmosis.lab.calls import MISSING, CallInput, CallOutcome, ScoredCall, call
from pytest_osmosis.lab.findings import NEVER_THE_INPUT, LabResult, RewardFinding
from pytest_osmosis.lab.target import ARGUMENTS, Target

ADD_A_CASE = "add a case, so that its inputs are known: @osmosis_reward(cases=[(solution_str, ground_truth, expect)])"


def check(target: Target, known: Sequence[CallInput] = ()) -> LabResult:
    """Check the contract; `known` are inputs that suit the function, best first."""
    findings = tuple(_signature(target))
    if findings:
        return LabResult(findings)
    fitting, outcome = _fitting(target, known)
    if outcome.kind != "score":
        return _never_scores(target, ScoredCall(fitting, outcome), known=bool(known))
    return LabResult(tuple(_calls(target, fitting, outcome)))


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
            yield RewardFinding(
                "signature", f"{name} is positional-only", definition, "drop the /: arguments come by name"
            )
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and required:
            if name not in arguments:
                fix = f"give {name} a default; callers pass {', '.join(arguments)}"
                yield RewardFinding("signature", f"{name} has no default, and no caller passes it", definition, fix)
            elif name == "extra_info":
                yield RewardFinding(
                    "signature", "extra_info has no default", definition, "write extra_info: dict | None = None"
                )


def _fitting(target: Target, known: Sequence[CallInput]) -> tuple[CallInput, CallOutcome]:
    """Return the first input that gets a score, else the first one that was tried."""
    tried = [
        *(call_input for call_input in known if target.mode == "full" or call_input.messages is None),
        *(CallInput(answer=truth, ground_truth=truth, extra={}) for truth, _ in truths(target)),
    ]
    first = tried[0], call(target, tried[0])
    if first[1].kind == "score":
        return first
    for call_input in tried[1:]:
        outcome = call(target, call_input)
        if outcome.kind == "score":
            return call_input, outcome
    return first


def _never_scores(target: Target, tried: ScoredCall, *, known: bool) -> LabResult:
    """Return a failure if the function is to blame; otherwise no suitable input is known, so nothing is measured."""
    if tried.outcome.kind == "not_a_score":
        return LabResult((_no_number(target, tried),))
    what = "no call that was tried returned a score"
    if _reads_extra(target, tried.input):
        name = ARGUMENTS[target.mode or "simple"][2]
        fix = f"read it with {name}.get(...), or raise a ValueError that names the missing key"
        return LabResult((RewardFinding("extra-info", f"it breaks with an empty {name}", tried.seen(target), fix),))
    if known or any(tried.outcome.text.startswith(f"raised {name}") for name in NEVER_THE_INPUT):
        return LabResult((RewardFinding("no-score", what, tried.seen(target), "correct the error, or the case"),))
    return LabResult(unmeasured=f"{what}: {tried.seen(target)}; {ADD_A_CASE}")


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


def _calls(target: Target, fitting: CallInput, outcome: CallOutcome) -> Iterator[RewardFinding]:
    yield from _returned(target, ScoredCall(fitting, outcome))
    if "extra_info" in target.parameters or target.mode == "full":
        yield from _without_extra(target, fitting)
    for answer in ("", "I do not know."):
        yield from _empty_truth(target, replace(fitting.answering(answer), ground_truth=""))
    yield from _no_truth(target, replace(fitting, ground_truth=None))


def _returned(target: Target, scored: ScoredCall) -> Iterator[RewardFinding]:
    if target.declaration.only_float and scored.outcome.returned in ("int", "bool"):
        yield RewardFinding(
            "only-float",
            f"it returns {scored.outcome.returned}",
            scored.seen(target),
            "return float(...): Osmosis' own decorator refuses it",
            level="note",
        )


def _without_extra(target: Target, fitting: CallInput) -> Iterator[RewardFinding]:
    name = ARGUMENTS[target.mode or "simple"][2]
    variants: list[tuple[str, Any]] = [(f"an empty {name}", {})]
    if target.mode == "simple":
        variants += [("no extra_info", MISSING), ("extra_info=None", None)]
    for what, extra in variants:
        scored = _scored(target, replace(fitting, extra=extra))
        if scored.outcome.kind == "raised":
            fix = f"read it with ({name} or {{}}).get(...), or raise a ValueError that names the missing key"
            yield RewardFinding("extra-info", f"it breaks with {what}", scored.seen(target), fix)
        elif scored.outcome.kind == "not_a_score":
            yield _no_number(target, scored)


def _empty_truth(target: Target, call_input: CallInput) -> Iterator[RewardFinding]:
    scored = _scored(target, call_input)
    if scored.outcome.kind == "raised":
        fix = "return a score, or raise a ValueError that says that a row needs a ground truth"
        yield RewardFinding("empty-ground-truth", "it breaks with an empty ground truth", scored.seen(target), fix)
    elif scored.outcome.kind == "not_a_score":
        yield _no_number(target, scored)


def _no_truth(target: Target, call_input: CallInput) -> Iterator[RewardFinding]:
    scored = _scored(target, call_input)
    if scored.outcome.kind == "raised":
        fix = 'rows without a ground truth pass None: raise ValueError("..."), or return a score'
        yield RewardFinding(
            "no-ground-truth",
            "it breaks with ground_truth=None",
            scored.seen(target),
            fix,
            level="failure" if _accepts_none(target) else "note",
        )
    elif scored.outcome.kind == "not_a_score":
        yield _no_number(target, scored)


def _accepts_none(target: Target) -> bool:
    parameter = target.parameters.get("ground_truth")
    annotation = None if parameter is None else parameter.annotation
    if isinstance(annotation, str):
        return "None" in annotation or "Optional" in annotation
    return type(None) in get_args(annotation)


def _no_number(target: Target, scored: ScoredCall) -> RewardFinding:
    what = "it does not return a finite number"
    return RewardFinding("not-a-number", what, scored.seen(target), "return a finite float on every path")


def _scored(target: Target, call_input: CallInput) -> ScoredCall:
    return ScoredCall(call_input, call(target, call_input))
