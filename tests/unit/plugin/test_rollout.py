"""The rollout that a test gets, and its scores."""

from __future__ import annotations

import pickle

import pytest

from pytest_osmosis.errors import ScoreError
from pytest_osmosis.plugin.rollout_fixture import RecordedScores, Rollout, Scores
from pytest_osmosis.record.run_record import RewardError
from pytest_osmosis.rewards.graders import Reward

MESSAGES = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "\ud800 4"}]


def rollout() -> Rollout:
    """Return a model's rollout: one of three functions raised, one scored, one never ran."""
    scores = RecordedScores(["a", "b", "c"], {"b": 0.5}, {"a": RewardError("ValueError: no", "Traceback ...")})
    return Rollout(3, 1, "model", MESSAGES, "4", {"ground_truth": "4"}, scores, {"output_tokens": 2}, 0.5, "stop")


def test_a_rollout_survives_the_way_to_a_worker() -> None:
    copy = pickle.loads(pickle.dumps(rollout()))

    assert (copy.row_index, copy.run_index, copy.source, copy.messages) == (3, 1, "model", MESSAGES)
    assert (copy.ground_truth, copy.row, copy.usage) == ("4", {"ground_truth": "4"}, {"output_tokens": 2})
    assert (copy.duration_s, copy.finish_reason, copy.solution_str) == (0.5, "stop", "\ud800 4")
    assert (list(copy.scores), copy.scores["b"]) == (["a", "b", "c"], 0.5)
    with pytest.raises(ScoreError, match=r"a gave no score: ValueError: no\nTraceback \.\.\."):
        copy.scores["a"]
    with pytest.raises(ScoreError, match="c gave no score: it never ran"):
        copy.scores.get("c")


def test_an_unknown_function_is_a_key_error_that_lists_the_valid_ones() -> None:
    scores = rollout().scores

    with pytest.raises(KeyError, match=r"'d' scores this eval \(valid: a, b, c\)"):
        scores["d"]
    assert "a" in scores
    assert "d" not in scores
    assert scores.get("d") is None


def test_a_score_is_computed_once_and_only_when_it_is_looked_up() -> None:
    computed: list[str] = []

    def reward(name: str) -> Reward:
        computed.append(name)
        return Reward(1.0, "exact", {"overlap": 0.5})

    scores = Scores(lambda: ["a", "b"], reward)

    assert (repr(scores), computed) == ("Scores({})", [])
    assert (scores["a"], scores["a"], computed) == (1.0, 1.0, ["a"])
    found = Rollout(0, 0, "reference", MESSAGES, None, {}, scores)
    assert (found.reasons["a"], found.score_metrics["a"], computed) == ("exact", {"overlap": 0.5}, ["a"])


def test_the_repr_of_a_rollout_shortens_a_long_answer() -> None:
    long = Rollout(0, 0, "reference", [{"role": "assistant", "content": "x" * 1000}], None, {})

    assert repr(long).startswith("<reference rollout row0-run0: 'xxx")
    assert len(repr(long)) < 300
