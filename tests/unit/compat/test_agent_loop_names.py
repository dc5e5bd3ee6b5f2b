"""The names that agents of Osmosis 0.2 use outside of a rollout: schemas, helpers, application."""

from __future__ import annotations

import pytest

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.base import (
    RolloutAgentLoop,
    RolloutContext,
    RolloutResult,
)
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.exceptions import ToolArgumentError
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.schemas import (
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    RolloutRequest,
)
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.server import create_app
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.tools import get_tool_call_info


class Loop(RolloutAgentLoop):
    """A loop that answers nothing."""

    name = "loop"

    def get_tools(self, request: RolloutRequest) -> list[OpenAIFunctionToolSchema]:
        return [OpenAIFunctionToolSchema(type="function", function=OpenAIFunctionSchema(name="add", description="Add"))]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        return ctx.complete([])


def test_arguments_of_tools_are_read_from_json_and_dicts() -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}

    assert get_tool_call_info({"id": "call-1", "function": function}) == ("call-1", "add", {"a": 1})
    assert get_tool_call_info({"id": "call-1", "function": {"name": "add", "arguments": {"a": 1}}})[2] == {"a": 1}
    for broken, message in [("{", "Invalid JSON arguments"), ("[1]", "Expected dict from JSON"), (1, "got int")]:
        with pytest.raises(ToolArgumentError, match=message) as caught:
            get_tool_call_info({"id": "call-2", "function": {"name": "add", "arguments": broken}})
        assert (caught.value.tool_call_id, caught.value.tool_name) == ("call-2", "add")


def test_an_application_takes_what_code_does_to_it_and_its_loop_has_tools_without_a_rollout() -> None:
    app = create_app(Loop(), max_concurrent=3)
    app.state.started = True
    app.add_middleware(dict, allow_origins=["*"])
    app.include_router(app.router)

    @app.get("/health")  # type: ignore[untyped-decorator]  # as FastAPI's is not
    def health() -> str:
        return "ok"

    assert health() == "ok"
    assert [tool.function.name for tool in Loop().get_default_tools()] == ["add"]
