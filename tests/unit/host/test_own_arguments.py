"""Agents, functions, Graders and judges get objects of their own: what one does to them, no other sees."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_osmosis import Grader, GraderContext
from pytest_osmosis.addons.osmosis_sdk.workflows import SdkGraderCode
from pytest_osmosis.addons.verifiers.hosted import EnvironmentCode
from pytest_osmosis.addons.verifiers.load import LoadedEnvironment
from pytest_osmosis.host.protocol import HostCode, Setup
from pytest_osmosis.models.base import own_copy
from pytest_osmosis.rewards.graders import GraderCode, Reward, eval_function
from pytest_osmosis.rollouts.agents import ChatContext
from pytest_osmosis.rollouts.environment import STATE, EnvironmentSource
from tests.servers import ChatServer, never, reply
from tests.unit.host.core_host import core_host, rubric_judge

CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "6 * 7"}]},
    {"role": "assistant", "content": "42", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
]
SCORED: Mapping[str, Any] = {
    "messages": CONVERSATION,
    "ground_truth": {"answers": ["42"]},
    "record": {"user_prompt": "6 * 7", "tags": ["a"], "metadata": {"level": [1]}, "ground_truth": "42"},
    "metrics": {"turns": 1.0},
    "samples": [{"label": "42", "extra_fields": {"notes": ["x"]}}],
}


def spoil(value: Any) -> None:
    """Empty a list or dict, and all in it."""
    if isinstance(value, dict | list):
        for item in items(value):
            spoil(item)
        value.clear()


class Spoilers:
    """User code that notes what it got, and then spoils it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def note(self, *values: Any) -> None:
        self.seen.append(copy.deepcopy(values))
        for value in values:
            spoil(value)

    def simple(self, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
        self.note(ground_truth, extra_info)
        return 1.0

    async def full(self, messages: Any, ground_truth: Any, metadata: Any) -> float:
        self.note(ground_truth, metadata, messages)
        return 1.0

    def any_keyword(self, messages: Any, **others: Any) -> float:
        self.note(others["ground_truth"], others["metadata"], messages)
        return 1.0

    @property
    def grader(self) -> GraderCode:
        class Spoils(Grader):
            async def grade(_, ctx: GraderContext) -> None:  # `self` is the test's
                self.note(ctx.label, ctx.metadata, ctx.sample.messages)
                self.note(ctx.sample.trajectory_messages)
                spoil(ctx.sample.metrics)
                ctx.set_reward(1.0)

        return GraderCode(Spoils)

    @property
    def sdk_grader(self) -> GraderCode:
        class Spoils:
            def __init__(_, config: Any) -> None:
                pass

            async def grade(_, ctx: Any) -> None:
                self.note(ctx.metadata, ctx.sample.messages, *ctx.sample.extra_fields.values())
                ctx.sample.reward = 1.0

        return SdkGraderCode(Spoils, package="pytest_osmosis.addons.osmosis_sdk.osmosis_ai")


FULL = (SCORED["ground_truth"], SCORED["record"], CONVERSATION)


@pytest.mark.parametrize(
    ("kind", "seen", "fields"),
    [
        ("grader", [FULL, (CONVERSATION,)], None),
        ("sdk_grader", [({"level": [1]}, CONVERSATION, ["x"])], {"reward": {"notes": []}}),
    ],
)
async def test_what_scores_sees_a_rollout_as_it_was_whatever_scored_before(kind: str, seen: Any, fields: Any) -> None:
    """A field that a Grader of the SDK changes in place is a changed field."""
    spoilers, given = Spoilers(), copy.deepcopy(dict(SCORED))
    names = ("simple", "full", "any_keyword")
    functions = tuple(eval_function(name, getattr(spoilers, name)) for name in names)
    async with core_host(never(), functions=functions, grader=getattr(spoilers, kind)) as host:
        for _ in range(2):  # runs of a row inline share objects
            host.events.clear()
            host.score(0, *names, "reward", **given)
            event = await host.heard("score", 0, scores={"reward": 1.0})
            assert (event["ground_truth"], event["errors"]) == (SCORED["ground_truth"], {})
            assert event.get("fields") == fields
    assert spoilers.seen == [FULL[:2], FULL, FULL, *seen] * 2
    assert given == SCORED


async def test_a_judge_is_sent_the_conversation_as_it_was() -> None:
    spoilers = Spoilers()
    with ChatServer(reply('{"score": 1, "explanation": "x"}')) as server:
        judge = rubric_judge(server, sees="conversation", metadata=("tags",))
        async with core_host(server, functions=(eval_function("full", spoilers.full),), judge=judge) as host:
            host.score(0, "full", "rubric", **copy.deepcopy(dict(SCORED)))
            await host.heard("score", 0, scores={"rubric": 1.0})
        sent = json.dumps(server.requests[0].body)
    assert all(text in sent for text in ("6 * 7", "42", "tags", "answers"))


async def test_a_rollout_gets_a_row_and_sampling_of_its_own() -> None:
    seen = []

    async def spoils(ctx: ChatContext) -> Any:
        seen.append(copy.deepcopy((ctx.prompt, ctx.metadata, ctx.sampling)))
        answer = [*copy.deepcopy(ctx.prompt), {"role": "assistant", "content": "42"}]
        spoil([ctx.prompt, ctx.metadata, ctx.sampling])
        return answer

    spoilers = Spoilers()
    row = {name: copy.deepcopy(SCORED[name]) for name in ("record", "ground_truth")}
    prompt, sampling = copy.deepcopy(CONVERSATION[:1]), {"stop": ["x"]}
    options: Any = {"functions": (eval_function("full", spoilers.full),), "sampling": sampling, "scores_at_once": True}
    async with core_host(never(), spoils, **options) as host:
        for _ in range(2):
            host.events.clear()
            host.run(0, prompt=prompt, **row)
            assert (await host.heard("score", 0))["ground_truth"] == SCORED["ground_truth"]
    assert seen == [(CONVERSATION[:1], SCORED["record"], {"stop": ["x"]})] * 2
    assert [each[:2] for each in spoilers.seen] == [FULL[:2]] * 2


async def test_a_replay_leaves_the_recorded_rollout_as_it_was() -> None:
    spoilers = Spoilers()
    given: Any = {"row": 0, "run": 0, "attempt": 1, "n_prompt": 1, "environment": {}, **copy.deepcopy(dict(SCORED))}
    before = copy.deepcopy(given)
    async with core_host(never(), functions=(eval_function("full", spoilers.full),)) as host:
        await host.core.replay(given, "full")
    assert given == before


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [{"a": value}]
    return value


@pytest.mark.parametrize("value", [None, "x", 1.5, [], {}, {"a": [{"b": []}], "c": "d"}, nested(2_000)], ids=type)
def test_a_copy_is_equal_and_shares_nothing_however_deep_it_is(value: Any) -> None:
    waiting = [(value, own_copy(value))]
    for one, other in waiting:
        assert type(one) is type(other)
        if isinstance(one, dict | list):
            assert one is not other
            waiting += zip(items(one), items(other), strict=True)


def items(holder: Any) -> list[Any]:
    return list(holder.values() if isinstance(holder, dict) else holder)


class Environment:
    """An environment whose rows JSON cannot hold, and whose rubric spoils the state that it scores."""

    def __init__(self, seen: list[Any]) -> None:
        self.rubric = self
        self._seen = seen
        self._rows = [{"prompt": CONVERSATION[:1], "info": {"tags": ["a"], "way": Path("x")}}]

    def get_eval_dataset(self) -> list[dict[str, Any]]:
        return self._rows

    async def rollout(self, *_: Any) -> None:
        raise NotImplementedError

    async def score_rollout(self, state: dict[str, Any]) -> None:
        self._seen.append({name: copy.deepcopy(state[name]) for name in ("completion", "info", "notes")})
        spoil(state)
        state["reward"] = 1.0


@pytest.mark.parametrize("record", [{}, {"input": {"info": {"tags": ["a"]}}}], ids=["of the environment", "of JSON"])
async def test_a_state_that_is_made_again_shares_nothing_with_what_it_is_made_of(record: Any) -> None:
    seen: list[Any] = []
    loaded = LoadedEnvironment(Environment(seen), ModuleType("made"), (), ())
    code = EnvironmentCode(EnvironmentSource("x", "x"), loaded, Setup(HostCode("roll", ".", (), {})))
    run: Any = {"row": 0, "run": 0, "attempt": 1, "messages": copy.deepcopy(CONVERSATION), "record": record}
    run["environment"] = {STATE: {"n_prompt": 1, "kept": {"notes": ["kept"]}}}
    before = copy.deepcopy(run)
    for _ in range(2):
        assert [reward for reward in await code.score([run]) if isinstance(reward, Reward)]
    assert (seen[0], run) == (seen[1], before)
    assert (seen[0]["info"]["tags"], seen[0]["completion"]) == (["a"], CONVERSATION[1:])
