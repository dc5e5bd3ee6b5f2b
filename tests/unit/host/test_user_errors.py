"""Errors of user code whose own code gets in the way of whoever looks at them."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.user_errors import broken
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rewards.graders import eval_function
from pytest_osmosis.rollouts.context import ChatContext
from tests.servers import reply
from tests.unit.host.core_host import core_host


class Opaque(Exception):
    """An error that raises whatever is asked of it, also its class."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class OpaqueTwice(Exception):
    """An error that raises such errors."""

    def __getattribute__(self, name: str) -> Any:
        raise Opaque


@pytest.mark.parametrize("error", [Opaque, OpaqueTwice])
async def test_an_error_that_nobody_can_look_at_is_the_error_of_its_run(error: type[Exception]) -> None:
    async def rollout(ctx: ChatContext) -> None:
        raise error

    async def score(solution_str: str) -> float:
        raise error

    function = eval_function("rewards:score", score)
    async with core_host(reply("42"), rollout, functions=(function,)) as host:
        host.run(0)
        host.score(1, "rewards:score")
        rolled, scored = await host.rollout(0), await host.heard("score", 1)

    assert (rolled["boundary"], rolled["error"].partition(":")[0]) == ("agent", error.__name__)
    assert scored["errors"]["rewards:score"]["message"].partition(":")[0] == error.__name__


def test_a_bug_that_follows_from_such_an_error_is_reported() -> None:
    try:
        raise Opaque
    except Opaque:
        try:
            raise ValueError("a bug")
        except ValueError as bug:
            event = broken(Key(RunId(0, 0), 1), bug)

    assert event["boundary"] == "host"
    assert "ValueError" in event["error"]
