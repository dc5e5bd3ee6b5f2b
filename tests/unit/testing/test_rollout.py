"""A rollout as a test gets it, and its scores."""

from __future__ import annotations

import json

import pytest

from pytest_osmosis.errors import ScoreError
from pytest_osmosis.plugin.rollout_tests.rollout import Recorded, Rollout, Scores
from pytest_osmosis.record.run_record import RewardError

MESSAGES = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "\ud800 4"}]


def rollout() -> Rollout:
    """Of a model; one of three functions broke, one scored, one never ran."""
    scores = Recorded(["a", "b", "c"], {"b": 0.5}, {"a": RewardError("ValueError: no", "Traceback ...")})
    return Rollout(3, 1, "model", MESSAGES, "4", {"ground_truth": "4"}, scores, {"output_tokens": 2}, 0.5, "stop")


def test_it_crosses_to_a_worker_as_ascii_json() -> None:
    found = Rollout.from_json(json.loads(json.dumps(rollout().to_json()).encode("ascii")))

    assert (found.row_index, found.run_index, found.source, found.messages) == (3, 1, "model", MESSAGES)
    assert (found.ground_truth, found.row, found.usage) == ("4", {"ground_truth": "4"}, {"output_tokens": 2})
    assert (found.duration_s, found.finish_reason, found.solution_str) == (0.5, "stop", "\ud800 4")
    assert (list(found.scores), found.scores["b"]) == (["a", "b", "c"], 0.5)
    with pytest.raises(ScoreError, match=r"a gave no score: ValueError: no\nTraceback \.\.\."):
        found.scores["a"]
    with pytest.raises(ScoreError, match="c gave no score: it never ran"):
        found.scores.get("c")


def test_a_name_that_scores_nothing_is_a_key_error_that_says_what_does() -> None:
    scores = rollout().scores

    with pytest.raises(KeyError, match="'d' scores this eval, but a, b, c"):
        scores["d"]
    assert "a" in scores
    assert "d" not in scores
    assert scores.get("d") is None


def test_a_score_is_worked_out_once_and_only_when_it_is_looked_up() -> None:
    asked: list[str] = []

    def score(name: str) -> float:
        asked.append(name)
        return 1.0

    scores = Scores(lambda: ["a", "b"], score)

    assert (repr(scores), asked) == ("Scores({})", [])
    assert (scores["a"], scores["a"], asked) == (1.0, 1.0, ["a"])


def test_a_long_answer_is_shortened_where_pytest_shows_the_rollout() -> None:
    long = Rollout(0, 0, "reference", [{"role": "assistant", "content": "x" * 1000}], None, {})

    assert repr(long).startswith("<reference rollout row0-run0: 'xxx")
    assert len(repr(long)) < 300
