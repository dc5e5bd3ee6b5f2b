"""Scorers in the shapes of other libraries, and those of the libraries, which `make test-scorers` installs."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_osmosis.checks.kinds import SeenRollout
from pytest_osmosis.rewards.graders import Reward, reward_of
from pytest_osmosis.rewards.scorers import scorer_function
from pytest_osmosis.text.user_code import UserValueFault


def answering(answer: str, ms: float | None = None) -> SeenRollout:
    return SeenRollout(
        [{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": answer}], 1, "42", ms=ms
    )


ROLLOUT = answering("42", ms=1500.0)


def scored(value: object, rollout: SeenRollout = ROLLOUT) -> Reward:
    function = scorer_function("scorers:it", value)
    assert function is not None
    result = function.function(rollout=rollout)
    assert inspect.isawaitable(result) == function.is_async
    return reward_of(asyncio.run(result) if inspect.iscoroutine(result) else result)


class Exact:
    """A scorer of autoevals."""

    def eval(self, output: str, expected: object = None, **kwargs: Any) -> Any:
        told = {"rationale": f"asked {kwargs['input']}"}
        return SimpleNamespace(score=float(output == expected), metadata=told, error=None)

    async def eval_async(self, output: str, expected: object = None, **kwargs: Any) -> Any:
        raise AssertionError


class Skipping(Exact):
    def eval(self, output: str, expected: object = None, **kwargs: Any) -> Any:
        return SimpleNamespace(score=None, metadata={}, error=None)


def exact_match(*, outputs: Any, reference_outputs: Any, **kwargs: Any) -> dict[str, Any]:
    """A scorer of openevals."""
    return {"key": "equal", "score": outputs == reference_outputs, "comment": "the same"}


async def judged(*, inputs: Any, outputs: Any) -> dict[str, Any]:
    return {"key": "judged", "score": 0.5, "comment": f"{inputs} {outputs}"}


@dataclass
class Equals:
    """An evaluator of Pydantic Evals."""

    reason: str = "as expected"

    def evaluate(self, ctx: Any) -> Any:
        return SimpleNamespace(value=ctx.output == ctx.expected_output, reason=self.reason)

    async def evaluate_async(self, ctx: Any) -> Any:
        raise AssertionError


class Named(Equals):
    async def evaluate(self, ctx: Any) -> Any:
        return {"longer": len(ctx.output) > len(ctx.inputs)}


class Fast(Equals):
    def evaluate(self, ctx: Any) -> Any:
        return {"fast": ctx.duration < 1}


@dataclass
class Metric:
    """A metric of DeepEval."""

    score: float | None = None
    reason: str = field(default="", init=False)

    def measure(self, test_case: Any) -> None:
        self.score = 0.75
        self.reason = f"{test_case.input} {test_case.actual_output} {test_case.expected_output}"

    async def a_measure(self, test_case: Any) -> None:
        raise AssertionError


async def match(state: Any, target: Any) -> Any:
    """A scorer of Inspect."""
    holds = state.output.completion in target
    return SimpleNamespace(value="C" if holds else "I", explanation=target.text)


def makes_match(location: str = "end") -> Any:
    return match


makes_match.__registry_info__ = SimpleNamespace(type="scorer")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("scorer", "score", "reason"),
    [
        (Exact, 1.0, "asked 6 * 7?"),
        (Exact(), 1.0, "asked 6 * 7?"),
        (exact_match, 1.0, "the same"),
        (judged, 0.5, "6 * 7? 42"),
        (Equals, 1.0, "as expected"),
        (Equals("so it is"), 1.0, "so it is"),
        (Named(), 0.0, ""),
        (Metric(), 0.75, "6 * 7? 42 42"),
        (match, 1.0, "42"),
        (makes_match, 1.0, "42"),
    ],
)
def test_scorers_of_other_libraries_score(scorer: object, score: float, reason: str) -> None:
    assert scored(scorer) == Reward(score, reason)


def test_a_scorer_sees_the_duration_if_it_is_known_and_one_that_skips_the_answer_is_an_error() -> None:
    assert [scored(Fast(), answering("42", ms)).score for ms in (10.0, 2000.0)] == [1.0, 0.0]
    with pytest.raises(AttributeError, match="duration"):
        scored(Fast(), answering("42"))
    with pytest.raises(UserValueFault, match="gave no score: it skipped the answer"):
        scored(Skipping)


class Other:
    def evaluate(self, ctx: Any) -> float:
        return 1.0


def test_other_code_is_no_scorer_and_one_belongs_to_the_module_that_the_user_names() -> None:
    others = [Other, Other(), lambda completions: 1.0, len, 5, "outputs", SimpleNamespace]
    assert [scorer_function("x:y", value) for value in others] == [None] * len(others)
    function = scorer_function("mine.scorers:strict.match", match)

    assert function is not None
    assert (function.function.__module__, function.function.__qualname__) == ("mine.scorers", "strict.match")


# -- scorers of the libraries themselves ----------------------------------------------------------------------


def found_in(module: str) -> Any:
    """Return the module, or skip the test if its library is not installed."""
    pytest.importorskip(module.partition(".")[0])
    return importlib.import_module(module)


@pytest.mark.nightly
def test_autoevals() -> None:
    assert scored(found_in("autoevals.string").Levenshtein, answering("42")).score == 1.0
    assert scored(found_in("autoevals.string").Levenshtein(), answering("43")).score == 0.5
    assert scored(found_in("autoevals.value").ExactMatch, answering("42")).score == 1.0


@pytest.mark.nightly
def test_openevals() -> None:
    exact = found_in("openevals.exact")

    assert scored(exact.exact_match, answering("42")).score == 1.0
    assert scored(exact.exact_match_async, answering("43")).score == 0.0


@pytest.mark.nightly
def test_pydantic_evals() -> None:
    evaluators = found_in("pydantic_evals.evaluators")

    assert scored(evaluators.EqualsExpected, answering("42")).score == 1.0
    assert scored(evaluators.Contains("4"), answering("42")).score == 1.0
    assert "4" in scored(evaluators.Contains("4"), answering("2")).reason
    assert scored(evaluators.IsInstance("int"), answering("42")).score == 0.0
    assert scored(evaluators.MaxDuration(1.0), answering("42")).score == 1.0


@pytest.mark.nightly
def test_deepeval() -> None:
    metrics = found_in("deepeval.metrics")

    assert scored(metrics.ExactMatchMetric(), answering("42")).score == 1.0
    assert scored(metrics.ExactMatchMetric(), answering("43")).score == 0.0
    assert scored(metrics.PatternMatchMetric(pattern="[0-9]+"), answering("42")).score == 1.0


@pytest.mark.nightly
def test_inspect() -> None:
    scorer = found_in("inspect_ai.scorer")

    assert scored(scorer.match, answering("It is 42")).score == 1.0
    assert scored(scorer.includes(), answering("It is 43")).score == 0.0
    assert scored(scorer.exact, answering("42")).score == 1.0
    assert scored(scorer.f1, answering("the 42")).score == 1.0
    assert scored(scorer.pattern(r"is (\d+)"), answering("It is 42")).score == 1.0
