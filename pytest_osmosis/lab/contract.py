"""The contract of a reward function: its signature, and what every caller may count on.

A failure is what would break a training run or an eval: an argument that nobody gives, no number, a NaN, an error from
deep inside where `extra_info` or the ground truth is empty. To refuse them clearly, with a ValueError or a `raise` of
its own, is fine. A note is what the function did not promise: to take None where it says `ground_truth: str`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from pytest_osmosis.lab.calls import MISSING, Input, Outcome, Scored, call
from pytest_osmosis.lab.examples import truths
from pytest_osmosis.lab.findings import NEVER_THE_INPUT, Finding, Verdict
from pytest_osmosis.lab.target import GIVEN, Target

GIVE_A_CASE = "give a case, so that its inputs are known: @osmosis_reward(cases=[(solution_str, ground_truth, expect)])"


def check(target: Target, known: Sequence[Input] = ()) -> Verdict:
    """Everything that is wrong with the contract; `known` are inputs that the function is made for, best first."""
    findings = tuple(_signature(target))
    if findings:
        return Verdict(findings)
    fitting, outcome = _fitting(target, known)
    if outcome.kind != "score":
        return _never_scores(target, Scored(fitting, outcome), known=bool(known))
    return Verdict(tuple(_calls(target, fitting, outcome)))


def _signature(target: Target) -> Iterator[Finding]:
    written = f"def {target.name}{inspect.signature(target.function)}"
    if target.mode is None:
        yield Finding(
            "signature",
            "its first parameter is neither solution_str nor messages",
            written,
            "name it solution_str (it gets the last answer's text) or messages (it gets the whole conversation)",
        )
        return
    given = GIVEN[target.mode]
    for name, parameter in target.parameters.items():
        required = parameter.default is parameter.empty
        if parameter.kind is parameter.POSITIONAL_ONLY:
            yield Finding("signature", f"{name} is positional-only", written, "drop the /: arguments come by name")
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and required:
            if name not in given:
                fix = f"give {name} a default; the arguments are {', '.join(given)}"
                yield Finding("signature", f"{name} has no default, and nobody gives it", written, fix)
            elif name == "extra_info":
                yield Finding("signature", "extra_info has no default", written, "write extra_info: dict | None = None")


def _fitting(target: Target, known: Sequence[Input]) -> tuple[Input, Outcome]:
    """The first input that gets a score, else the first one that was tried."""
    tried = [
        *(given for given in known if target.mode == "full" or given.messages is None),
        *(Input(answer=truth, ground_truth=truth, extra={}) for truth, _ in truths(target)),
    ]
    first = tried[0], call(target, tried[0])
    if first[1].kind == "score":
        return first
    for given in tried[1:]:
        outcome = call(target, given)
        if outcome.kind == "score":
            return given, outcome
    return first


def _never_scores(target: Target, tried: Scored, *, known: bool) -> Verdict:
    """A failure where it is the function's own; else nobody knows what it takes, so nothing can be said."""
    if tried.outcome.kind == "not_a_score":
        return Verdict((_no_number(target, tried),))
    what = "no call that was tried gave a score"
    if _reads_extra(target, tried.input):
        name = GIVEN[target.mode or "simple"][2]
        fix = f"read it with {name}.get(...), or raise ValueError saying what it must hold"
        return Verdict((Finding("extra-info", f"it breaks with an empty {name}", tried.seen(target), fix),))
    if known or any(tried.outcome.text.startswith(f"raised {name}") for name in NEVER_THE_INPUT):
        return Verdict((Finding("no-score", what, tried.seen(target), "correct the error, or the case"),))
    return Verdict(unmeasured=f"{what}, as {tried.seen(target)}; {GIVE_A_CASE}")


def _reads_extra(target: Target, given: Input) -> bool:
    """True where a call breaks as it asks for a key that is not there."""
    missed: list[object] = []

    class Watched(dict[str, Any]):
        def __missing__(self, key: object) -> Any:
            missed.append(key)
            raise KeyError(key)

        def __deepcopy__(self, memo: object) -> Watched:
            return self

    call(target, replace(given, extra=Watched()))
    return bool(missed)


def _calls(target: Target, fitting: Input, outcome: Outcome) -> Iterator[Finding]:
    yield from _returned(target, Scored(fitting, outcome))
    if "extra_info" in target.parameters or target.mode == "full":
        yield from _without_extra(target, fitting)
    for answer in ("", "I do not know."):
        yield from _empty_truth(target, replace(fitting.answering(answer), ground_truth=""))
    yield from _no_truth(target, replace(fitting, ground_truth=None))


def _returned(target: Target, scored: Scored) -> Iterator[Finding]:
    if target.declaration.only_float and scored.outcome.returned in ("int", "bool"):
        yield Finding(
            "only-float",
            f"it returns {scored.outcome.returned}",
            scored.seen(target),
            "return float(...): Osmosis' own decorator refuses it",
            level="note",
        )


def _without_extra(target: Target, fitting: Input) -> Iterator[Finding]:
    name = GIVEN[target.mode or "simple"][2]
    variants: list[tuple[str, Any]] = [(f"an empty {name}", {})]
    if target.mode == "simple":
        variants += [("no extra_info", MISSING), ("extra_info=None", None)]
    for what, extra in variants:
        scored = _scored(target, replace(fitting, extra=extra))
        if scored.outcome.kind == "raised":
            fix = f"read it with ({name} or {{}}).get(...), or raise ValueError saying what it must hold"
            yield Finding("extra-info", f"it breaks with {what}", scored.seen(target), fix)
        elif scored.outcome.kind == "not_a_score":
            yield _no_number(target, scored)


def _empty_truth(target: Target, given: Input) -> Iterator[Finding]:
    scored = _scored(target, given)
    if scored.outcome.kind == "raised":
        fix = "score it, or raise ValueError saying that a row needs a ground truth"
        yield Finding("empty-ground-truth", "it breaks with an empty ground truth", scored.seen(target), fix)
    elif scored.outcome.kind == "not_a_score":
        yield _no_number(target, scored)


def _no_truth(target: Target, given: Input) -> Iterator[Finding]:
    scored = _scored(target, given)
    if scored.outcome.kind == "raised":
        fix = 'a row without a ground truth gives None: raise ValueError("..."), or score it'
        yield Finding(
            "no-ground-truth",
            "it breaks with ground_truth=None",
            scored.seen(target),
            fix,
            level="failure" if _says_none(target) else "note",
        )
    elif scored.outcome.kind == "not_a_score":
        yield _no_number(target, scored)


def _says_none(target: Target) -> bool:
    """True where its ground truth is annotated with None among its types."""
    parameter = target.parameters.get("ground_truth")
    annotation = None if parameter is None else parameter.annotation
    if isinstance(annotation, str):
        return "None" in annotation or "Optional" in annotation
    return type(None) in get_args(annotation)


def _no_number(target: Target, scored: Scored) -> Finding:
    what = "it gives no finite number"
    return Finding("not-a-number", what, scored.seen(target), "return a finite float on every path")


def _scored(target: Target, given: Input) -> Scored:
    return Scored(given, call(target, given))
