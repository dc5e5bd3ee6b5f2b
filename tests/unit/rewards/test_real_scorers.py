"""Scorers of the libraries themselves, those that ask no model: `make test-scorers` installs them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from typing import Any

import pytest

from pytest_osmosis.checks.kinds import SeenRollout
from pytest_osmosis.rewards.graders import Reward, reward_of
from pytest_osmosis.rewards.scorers import scorer_function

pytestmark = pytest.mark.nightly


def found_in(module: str) -> Any:
    """Return the module, or skip the test if its library is not installed."""
    pytest.importorskip(module.partition(".")[0])
    return importlib.import_module(module)


def scored(value: object, answer: str, truth: object = "42") -> Reward:
    function = scorer_function("scorers:it", value)
    assert function is not None
    messages = [{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": answer}]
    result = function.function(SeenRollout(messages, 1, truth))
    return reward_of(asyncio.run(result) if inspect.iscoroutine(result) else result)


def test_autoevals() -> None:
    assert scored(found_in("autoevals.string").Levenshtein, "42").score == 1.0
    assert scored(found_in("autoevals.string").Levenshtein(), "43").score == 0.5
    assert scored(found_in("autoevals.value").ExactMatch, "42").score == 1.0


def test_openevals() -> None:
    exact = found_in("openevals.exact")

    assert scored(exact.exact_match, "42").score == 1.0
    assert scored(exact.exact_match_async, "43").score == 0.0


def test_pydantic_evals() -> None:
    evaluators = found_in("pydantic_evals.evaluators")

    assert scored(evaluators.EqualsExpected, "42").score == 1.0
    assert scored(evaluators.Contains("4"), "42").score == 1.0
    assert "4" in scored(evaluators.Contains("4"), "2").reason
    assert scored(evaluators.IsInstance("int"), "42").score == 0.0
    assert scored(evaluators.MaxDuration(1.0), "42").score == 1.0


def test_deepeval() -> None:
    metrics = found_in("deepeval.metrics")

    assert scored(metrics.ExactMatchMetric(), "42").score == 1.0
    assert scored(metrics.ExactMatchMetric(), "43").score == 0.0
    assert scored(metrics.PatternMatchMetric(pattern="[0-9]+"), "42").score == 1.0


def test_inspect() -> None:
    scorer = found_in("inspect_ai.scorer")

    assert scored(scorer.match, "It is 42").score == 1.0
    assert scored(scorer.includes(), "It is 43").score == 0.0
    assert scored(scorer.exact, "42").score == 1.0
    assert scored(scorer.f1, "the 42").score == 1.0
    assert scored(scorer.pattern(r"is (\d+)"), "It is 42").score == 1.0
