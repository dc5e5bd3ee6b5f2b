"""Scorers of other libraries as eval functions. They are known by their shape; nothing of theirs is imported here.

- autoevals: a class, or an object of one, with `eval(output, expected, input)` and `eval_async`
- openevals: a function of `outputs` and `reference_outputs` or `inputs`, which returns a mapping
- Pydantic Evals: an object with `evaluate(ctx)`, or its class
- DeepEval: an object with `measure(test_case)` and `a_measure`, or its class
- Inspect: `async def score(state, target)`, or the registered function that makes it

Sources: autoevals 0.4.1, openevals 0.2.2, pydantic-evals 2.62.0, deepeval 4.3.1, inspect-ai 0.3.285.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from pytest_osmosis.checks.kinds import SeenRollout
from pytest_osmosis.rewards.graders import EvalFunction
from pytest_osmosis.text.chat_messages import answer_of, text_of
from pytest_osmosis.text.user_code import UserValueFault, described

Result = dict[str, object]


def scorer_function(name: str, value: Any) -> EvalFunction | None:
    """Return a scorer of another library as an eval function, None for any other code."""
    if inspect.isclass(value):
        makes_scorer = any(_has(value, *methods) for methods in _METHODS)
    else:
        registered = getattr(getattr(value, "__registry_info__", None), "type", None)
        makes_scorer = registered == "scorer" and not _is_of_inspect(value)
    score = _adapted(value() if makes_scorer else value)
    if score is None:
        return None
    # its digest is that of the module that the user names, which may hold the arguments of the scorer
    score.__module__, _, score.__qualname__ = name.partition(":")
    return EvalFunction(name, score, "rollout", inspect.iscoroutinefunction(score), parameters=None)


def _adapted(scorer: Any) -> Callable[[SeenRollout], Any] | None:
    if _is_of_inspect(scorer):
        return _of_inspect(scorer)
    for methods, adapt in _METHODS.items():
        if _has(scorer, *methods):
            return adapt(scorer)
    parameters = _parameters(scorer)
    if "outputs" in parameters and not parameters.isdisjoint(("inputs", "reference_outputs")):
        return _of_openevals(scorer, parameters)
    return None


def _has(value: object, *methods: str) -> bool:
    return all(inspect.isroutine(inspect.getattr_static(value, name, None)) for name in methods)


def _parameters(value: object) -> set[str]:
    try:
        return set(inspect.signature(value).parameters) if inspect.isroutine(value) else set()
    except ValueError:  # some functions of extension modules have no signature
        return set()


def _is_of_inspect(value: object) -> bool:
    return inspect.iscoroutinefunction(value) and _parameters(value) == {"state", "target"}


def _question(rollout: SeenRollout) -> str:
    texts = [text_of(each.get("content")) for each in rollout.messages[: rollout.n_prompt] if each["role"] == "user"]
    return texts[-1] if texts else ""


def _answer(rollout: SeenRollout) -> str:
    return answer_of(rollout.own) or ""


def _scoring(
    call: Callable[[SeenRollout], Any], result: Callable[[Any], Result], *, is_async: bool
) -> Callable[[SeenRollout], Any]:

    async def score_async(rollout: SeenRollout) -> Result:
        return result(await call(rollout))

    return score_async if is_async else lambda rollout: result(call(rollout))


def _of_autoevals(scorer: Any) -> Callable[[SeenRollout], Any]:
    def call(rollout: SeenRollout) -> Any:
        return scorer.eval(output=_answer(rollout), expected=rollout.ground_truth, input=_question(rollout))

    def result(found: Any) -> Result:
        if found.score is None:
            raise UserValueFault(f"gave no score: {found.error or 'it skipped the answer'}")
        return {"score": found.score, "reason": (found.metadata or {}).get("rationale")}

    return _scoring(call, result, is_async=False)


def _of_openevals(scorer: Any, parameters: set[str]) -> Callable[[SeenRollout], Any]:
    def call(rollout: SeenRollout) -> Any:
        offered = {
            "inputs": _question(rollout),
            "outputs": _answer(rollout),
            "reference_outputs": rollout.ground_truth,
        }
        return scorer(**{name: value for name, value in offered.items() if name in parameters})

    def result(found: object) -> Result:
        if not isinstance(found, Mapping):
            raise UserValueFault(f"must return one mapping with a score, got {described(found)}")
        return {"score": found.get("score"), "reason": found.get("comment")}

    return _scoring(call, result, is_async=inspect.iscoroutinefunction(scorer))


def _of_pydantic(scorer: Any) -> Callable[[SeenRollout], Any]:
    def call(rollout: SeenRollout) -> Any:
        context = SimpleNamespace(
            name=None,
            inputs=_question(rollout),
            output=_answer(rollout),
            expected_output=rollout.ground_truth,
            metadata=None,
            attributes={},
            metrics={},
            **({} if rollout.ms is None else {"duration": rollout.ms / 1000}),
        )
        return scorer.evaluate(context)

    def result(found: Any) -> Result:
        if isinstance(found, Mapping) and len(found) == 1:
            found = next(iter(found.values()))
        return {"score": getattr(found, "value", found), "reason": getattr(found, "reason", None)}

    return _scoring(call, result, is_async=inspect.iscoroutinefunction(scorer.evaluate))


def _of_deepeval(scorer: Any) -> Callable[[SeenRollout], Result]:
    def score(rollout: SeenRollout) -> Result:
        case = getattr(sys.modules.get("deepeval.test_case"), "LLMTestCase", SimpleNamespace)
        expected = None if rollout.ground_truth is None else str(rollout.ground_truth)
        scorer.measure(case(input=_question(rollout), actual_output=_answer(rollout), expected_output=expected))
        return {"score": scorer.score, "reason": getattr(scorer, "reason", None)}

    return score


_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""The grades of Inspect: correct, partially correct, incorrect, no answer."""


class ExpectedTexts(tuple[str, ...]):
    """The expected texts, as scorers of Inspect get them."""

    __slots__ = ()

    @property
    def text(self) -> str:
        return "".join(self)

    @property
    def target(self) -> list[str]:
        return list(self)


def _of_inspect(scorer: Any) -> Callable[[SeenRollout], Any]:
    async def score(rollout: SeenRollout) -> Result:
        truth, question = rollout.ground_truth, _question(rollout)
        texts = truth if isinstance(truth, list) else [] if truth is None else [truth]
        state = SimpleNamespace(
            input=question,
            input_text=question,
            messages=rollout.messages,
            metadata={},
            output=SimpleNamespace(completion=_answer(rollout)),
        )
        found = await scorer(state, ExpectedTexts(map(str, texts)))
        return {"score": _GRADES.get(found.value, found.value), "reason": found.explanation}

    return score


_METHODS: Mapping[tuple[str, ...], Callable[[Any], Callable[[SeenRollout], Any]]] = {
    ("eval", "eval_async"): _of_autoevals,
    ("measure", "a_measure"): _of_deepeval,
    ("evaluate", "evaluate_async"): _of_pydantic,
}
"""The methods by which objects of a library are known."""
