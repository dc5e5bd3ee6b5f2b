"""The means and pass rates in metadata.json, with the cases of verifiers' own tests (tests/test_save_utils.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers import prime_files

USAGE = {"input_tokens": 10.0, "output_tokens": 5.0}


def totals(runs: int, rewards: Mapping[int, Sequence[float]], threshold: float = 0.5, **members: Any) -> Any:
    """Return the totals of lines with these rewards, by example."""
    found = prime_files._Totals(runs, threshold)
    for example, values in rewards.items():
        for reward in values:
            line: dict[str, Any] = {
                "example_id": example,
                "reward": reward,
                "error": None,
                "metrics": {},
                "tool_defs": [],
            }
            found.add({**line, **members})
    return found


@pytest.mark.parametrize(
    ("runs", "threshold", "rewards", "at", "hat"),
    [
        (4, 0.5, {0: [1, 0, 1, 0]}, {"1": 0.5, "2": 5 / 6, "4": 1.0}, {"1": 0.5, "2": 1 / 6, "4": 0.0}),
        (4, 0.5, {0: [1, 1, 1, 1], 1: [0, 0, 0, 0]}, {"1": 0.5, "2": 0.5, "4": 0.5}, {"1": 0.5, "2": 0.5, "4": 0.5}),
        (4, 0.7, {0: [0.4, 0.6, 0.8, 0.3]}, {"1": 0.25, "2": 0.5, "4": 1.0}, {"1": 0.25, "2": 0.0, "4": 0.0}),
        (4, 0.5, {0: [0.49, 0.5, 1, 0]}, {"1": 0.5, "2": 5 / 6, "4": 1.0}, {"1": 0.5, "2": 1 / 6, "4": 0.0}),
        (4, 0.5, {0: [1, 1, 1, 1], 1: [0, 0]}, {"1": 1.0, "2": 1.0, "4": 1.0}, {"1": 1.0, "2": 1.0, "4": 1.0}),
        (3, 0.5, {0: [1, 1, 1]}, {"1": 1.0, "2": 1.0}, {"1": 1.0, "2": 1.0}),
        (1, 0.5, {0: [1]}, {}, {}),
        (4, 0.5, {}, {}, {}),
    ],
)
def test_pass_rates_are_those_of_verifiers(
    runs: int, threshold: float, rewards: Any, at: dict[str, float], hat: dict[str, float]
) -> None:
    found_at, found_hat = totals(runs, rewards, threshold).pass_rates()

    assert found_at == pytest.approx(at)
    assert found_hat == pytest.approx(hat)


def test_k_is_each_power_of_two_up_to_the_number_of_runs() -> None:
    at, _ = totals(16, {0: [1] * 16}).pass_rates()

    assert list(at) == ["1", "2", "4", "8", "16"]


def test_metrics_and_usage_are_means_over_the_lines_that_have_them() -> None:
    found = totals(2, {0: [1.0, 0.0]}, metrics={"a": 1.0}, token_usage=USAGE)
    found.add({"example_id": 1, "reward": 0.0, "error": {"error": "X"}, "metrics": {"b": 0.5}, "tool_defs": []})

    mean = prime_files._mean
    assert {name: mean(values) for name, values in found.metrics.items()} == {"a": 1.0, "b": 0.5}
    assert {name: mean(values) for name, values in found.usage.items()} == USAGE
    assert mean(found.rewards) == pytest.approx(1 / 3)
    assert found.n_errors == 1


def test_the_mean_of_numbers_whose_sum_no_float_holds_is_finite() -> None:
    assert prime_files._mean([1.7e308, 1.7e308, -1.7e308, 0.5]) == 1.7e308 / 4
    assert prime_files._mean([]) == 0.0
