"""Results of reward functions, a number, or a score with a reason and metrics; and the arguments of eval functions."""

from __future__ import annotations

import math
import re
from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from pytest_osmosis.rewards.graders import (
    MOST_REASON_CHARS,
    GraderCode,
    GraderContext,
    Reward,
    RolloutToGrade,
    eval_function,
    reward_of,
)
from pytest_osmosis.text.user_code import MOST_FIELD_CHARS, MOST_FIELDS, MOST_METRICS, UserValueFault
from tests.hostile.hostile_objects import VALUES
from tests.raised import raised, raised_by


@dataclass
class Verdict:
    score: float
    reason: str | None = None
    metrics: dict[str, float] | None = None
    spare: list[str] = field(default_factory=list)


class Raising:
    score = 1.0

    @property
    def reason(self) -> str:
        raise KeyError("reason")


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("returned", "reward"),
    [
        (1, Reward(1.0)),
        ({"score": True}, Reward(1.0)),
        ({"score": 0.5, "reason": " why\n", "metrics": {"a": 1}}, Reward(0.5, "why", {"a": 1.0})),
        ({"score": 0.5, "reason": None, "metrics": None}, Reward(0.5)),
        (UserDict(score=0.5, reason=""), Reward(0.5)),
        (Verdict(0.5), Reward(0.5)),
        (Verdict(0.5, "why", {"a": 1.5}), Reward(0.5, "why", {"a": 1.5})),
        (SimpleNamespace(score=0.5, reason="why", label="ignored"), Reward(0.5, "why")),
    ],
)  # fmt: skip
def test_a_reward_may_come_with_a_reason_and_metrics(returned: object, reward: Reward) -> None:
    assert reward_of(returned) == reward


NO_SCORE = "returned a mapping without a score; return a number, or {"
UNKNOWN = "returned a mapping with the unknown key"
MANY = {str(n): n for n in range(MOST_METRICS + 1)}
NAMES = "metrics: a name must be a text of 1 to 100 characters, got"


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        ("1.0", "must return a number, got str: '1.0'"),
        (Verdict, "must return a number, got type: <class"),
        ({"reason": "why"}, NO_SCORE),
        ({"score": 1.0, "raeson": "why"}, f"{UNKNOWN} 'raeson', did you mean \"reason\"? (valid: score, reason, metr"),
        ({"score": 1.0, "f1": 0.5}, f"{UNKNOWN} 'f1'; put further numbers into its metrics (valid:"),
        ({"score": 1.0, 5: 0.5}, f"{UNKNOWN} 5; put further numbers into its metrics"),
        ({"score": "1.0"}, "the returned score must be a number, got str: '1.0'"),
        ({"score": None}, "the returned score must be a number, got NoneType: None"),
        ({"score": NAN}, "the returned score must be a finite number, got nan"),
        ({"score": 10**400}, "the returned score must be a finite number, got one beyond the largest float"),
        ({"score": 1.0, "reason": ["why"]}, "the returned reason must be a text, got list: ['why']"),
        ({"score": 1.0, "metrics": [0.5]}, "metrics: must be numbers by name, got list: [0.5]"),
        ({"score": 1.0, "metrics": {"f1": INF}}, "metrics: 'f1' must be a finite number, got inf; leave it out where"),
        ({"score": 1.0, "metrics": {"f1": "0.5"}}, "metrics: 'f1' must be a number, got str: '0.5'; leave it out"),
        ({"score": 1.0, "metrics": {5: 0.5}}, f"{NAMES} 5"),
        ({"score": 1.0, "metrics": {" ": 0.5}}, f"{NAMES} ' '"),
        ({"score": 1.0, "metrics": {"x" * 101: 0.5}}, f"{NAMES} 'xxx"),
        ({"score": 1.0, "metrics": MANY}, "metrics: holds more than 100 numbers; return those that you will compare"),
        (MagicMock(), "the returned score must be a number, got MagicMock"),
        (Verdict(1.0, 5), "the returned reason must be a text, got int: 5"),  # type: ignore[arg-type]
    ],
)
def test_anything_else_is_refused_in_words_that_say_what_to_do(returned: object, fault: str) -> None:
    assert str(raised(UserValueFault, reward_of, returned)).startswith(fault)


def test_as_many_metrics_as_allowed_are_kept_and_a_long_reason_lacks_its_middle() -> None:
    metrics = {str(n): float(n) for n in range(MOST_METRICS)}
    reward = reward_of({"score": 1.0, "reason": "begin " + "x" * 1_000_000 + " end", "metrics": metrics})

    assert reward.metrics == metrics
    assert len(reward.reason) <= MOST_REASON_CHARS
    assert re.fullmatch("begin.*characters left out.* end", reward.reason)


def test_a_mapping_without_end_is_refused_and_errors_of_attributes_are_those_of_user_code() -> None:
    class Endless(Mapping[str, float]):
        def __getitem__(self, name: str) -> float:
            return 1.0

        def __iter__(self) -> Any:
            number = 0
            while True:
                number += 1
                yield str(number)

        def __len__(self) -> int:
            return 10**12

    with pytest.raises(UserValueFault, match="unknown key '1'"):
        reward_of(Endless())
    with pytest.raises(UserValueFault, match="holds more than 100 numbers"):
        reward_of({"score": 1.0, "metrics": Endless()})
    with pytest.raises(KeyError, match="reason"):
        reward_of(Raising())


OWN_ERRORS = {"hostileclass", "hostilefloat", "hostileint", "zero", "zero2", "shaperaises", "getattr"}
SLOW = {"hangingrepr", "exitrepr"}


@pytest.mark.parametrize("name", sorted(VALUES.keys() - OWN_ERRORS - SLOW))
@pytest.mark.parametrize("part", ["score", "reason", "metrics", "metric"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_object_within_a_mapping_is_taken_or_refused_in_a_line(name: str, part: str) -> None:
    value = VALUES[name]
    returned = {"score": 1.0, **({"metrics": {"m": value}} if part == "metric" else {part: value})}
    reward, refused = Reward(1.0), ""
    try:
        reward = reward_of(returned)
    except UserValueFault as error:
        refused = str(error)
    assert len(refused) < 300
    assert all(map(math.isfinite, reward.metrics.values()))
    assert type(reward.reason) is str


async def graded(grade: Any, **metrics: float) -> Reward:
    class Judge:
        async def grade(self, ctx: GraderContext) -> None:
            grade(ctx)

    return await GraderCode(Judge).grade(RolloutToGrade([], "15", {}, metrics, (), Path(), Path()))


async def test_a_grader_sees_the_rollouts_metrics_and_its_own_are_kept_or_fields_if_no_numbers() -> None:
    def grade(ctx: GraderContext) -> None:
        assert ctx.sample.metrics == {"turns": 3.0, "tools": 1.0}
        ctx.sample.metrics["tools"] = 2
        ctx.sample.metrics |= {"overlap": 0.5, "loss": NAN, "label": "close"}  # type: ignore[dict-item]
        ctx.sample.extra_fields["judge"] = {"model": "x"}
        ctx.set_reward({"score": 0.5, "reason": "half of it", "metrics": {"f1": 0.25}})

    reward = await graded(grade, turns=3.0, tools=1.0)

    fields = {"loss": "nan", "label": "close", "judge": {"model": "x"}}
    assert reward == Reward(0.5, "half of it", {"tools": 2.0, "overlap": 0.5, "f1": 0.25}, fields)


async def test_a_grader_that_removes_a_sample_may_say_why() -> None:
    def grade(ctx: GraderContext) -> None:
        ctx.sample.remove_sample = True
        ctx.sample.extra_fields = {"why": "the tool was down"}

    assert await graded(grade) == Reward(None, fields={"why": "the tool was down"})


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("metrics", [1], "sample.metrics: must be numbers by name, got list: [1]"),
        ("extra_fields", 5, "sample.extra_fields: must be a mapping of fields, got int: 5"),
        ("extra_fields", {"deep": VALUES["deep"]}, "sample.extra_fields: 'deep' cannot be written as JSON: "),
        ("extra_fields", {"cycle": VALUES["cycle"]}, "sample.extra_fields: 'cycle' cannot be written as JSON: "),
    ],
)
async def test_fields_that_cannot_be_kept_are_an_error(name: str, value: object, fault: str) -> None:
    def grade(ctx: GraderContext) -> None:
        setattr(ctx.sample, name, value)
        ctx.set_reward(1.0)

    assert str(await raised_by(UserValueFault, graded(grade))).startswith(fault)


async def test_fields_are_bounded_and_say_what_they_leave_out() -> None:
    nested: Any = 1
    for _ in range(100):
        nested = [nested]

    def grade(ctx: GraderContext) -> None:
        ctx.sample.extra_fields = {"long": "x" * 1_000_000, "nested": nested, "object": object, "nan": [NAN]}
        ctx.sample.extra_fields |= {str(n): n for n in range(MOST_FIELDS)}
        ctx.set_reward(1.0)

    fields = (await graded(grade)).fields

    assert len(fields["long"]) <= MOST_FIELD_CHARS
    assert "characters left out" in fields["long"]
    assert fields["nested"].startswith("[[[")
    assert fields["object"] == "<class 'object'>"
    assert fields["nan"] == ["nan"]
    assert fields["..."] == "fields after the first 50 are left out"
    assert len(fields) == MOST_FIELDS + 1


# -- the functions on the page of eval mode, as they are called -------------------------------------------


ROW = {"system_prompt": "Be brief.", "user_prompt": "6 * 7?", "ground_truth": " 42", "level": 3}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "6 * 7?"},
    {"role": "assistant", "content": "Let me see."},
    {"role": "user", "content": "Go on."},
    {"role": "assistant", "content": "42\n"},
]

CODE = """
def exact_match(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs) -> float:
    return 1.0 if solution_str.strip() == ground_truth.strip() else 0.0

def conversation_quality(messages: list, ground_truth: str, metadata: dict, **kwargs) -> float:
    assistant_messages = [m for m in messages if m["role"] == "assistant"]
    return min(1.0, len(assistant_messages) / 3)
"""
REWARDS: dict[str, Any] = {"__name__": "rewards"}
exec(CODE, REWARDS)


def decorated(function: Any) -> Any:
    from pytest_osmosis import osmosis_reward

    return osmosis_reward(function)


@pytest.mark.parametrize("decorate", [lambda function: function, pytest.param(decorated, marks=pytest.mark.addon)])
@pytest.mark.parametrize(
    ("name", "mode", "arguments", "score"),
    [
        ("exact_match", "simple", {"solution_str": "42\n", "ground_truth": " 42", "extra_info": ROW}, 1.0),
        ("conversation_quality", "full", {"messages": CONVERSATION, "ground_truth": " 42", "metadata": ROW}, 2 / 3),
    ],
)
def test_simple_mode_gets_the_last_answer_and_full_mode_the_conversation_and_both_the_row(
    decorate: Any, name: str, mode: str, arguments: dict[str, Any], score: float
) -> None:
    function = decorate(REWARDS[name])
    found = eval_function(f"rewards:{name}", function)

    assert (found.mode, found.arguments(CONVERSATION, 2, ROW["ground_truth"], ROW)) == (mode, arguments)
    assert function(**arguments) == pytest.approx(score)
