"""Unit tests on the reference solutions; with --osmosis-source=model, a smoke test on a model's answers."""

from __future__ import annotations

import pytest
from rewards import compute_reward

from pytest_osmosis import Rollout

pytestmark = pytest.mark.osmosis_eval("configs/eval/math.toml", n=2)


def test_a_right_answer_is_rewarded(rollout: Rollout) -> None:
    assert compute_reward(rollout.solution_str, rollout.ground_truth, rollout.row) == 1.0


def test_an_answer_ends_with_a_marked_number(rollout: Rollout) -> None:
    assert rollout.solution_str.splitlines()[-1].startswith("####")
