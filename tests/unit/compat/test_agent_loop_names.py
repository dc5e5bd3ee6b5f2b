"""The names that agents of Osmosis 0.2 use outside of a rollout: schemas, helpers, registry, application, checks."""

from __future__ import annotations

import pytest
from pydantic import ValidationError as SchemaError

from pytest_osmosis.compat.osmosis_ai.rollout.core.base import RolloutAgentLoop, RolloutContext, RolloutResult
from pytest_osmosis.compat.osmosis_ai.rollout.core.exceptions import AgentLoopNotFoundError, ToolArgumentError
from pytest_osmosis.compat.osmosis_ai.rollout.core.schemas import (
    OpenAIFunctionCallSchema,
    OpenAIFunctionParsedSchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    RolloutRequest,
    ToolResponse,
    set_max_metadata_size_bytes,
)
from pytest_osmosis.compat.osmosis_ai.rollout.registry import AgentLoopRegistry, get_agent_loop
from pytest_osmosis.compat.osmosis_ai.rollout.server.app import create_app
from pytest_osmosis.compat.osmosis_ai.rollout.server.serve import ServeError, serve_agent_loop
from pytest_osmosis.compat.osmosis_ai.rollout.tools import get_tool_call_info, parse_tool_arguments
from pytest_osmosis.compat.osmosis_ai.rollout.validator import AgentLoopValidationError, validate_agent_loop


class Loop(RolloutAgentLoop):
    """A loop that answers nothing."""

    name = "loop"

    def get_tools(self, request: RolloutRequest) -> list[OpenAIFunctionToolSchema]:
        return [OpenAIFunctionToolSchema(type="function", function=OpenAIFunctionSchema(name="add", description="Add"))]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        return ctx.complete([])


def request(**values: object) -> RolloutRequest:
    """Return a request with these fields and valid others."""
    given = {"rollout_id": "r", "server_url": "http://localhost", "messages": [], "completion_params": {}, **values}
    return RolloutRequest.model_validate(given)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rollout_id": "  "}, "rollout_id cannot be empty or whitespace only"),
        ({"rollout_id": "r" * 257}, "at most 256 characters"),
        ({"server_url": "ftp://localhost"}, "server_url must use http or https scheme"),
        ({"server_url": "http://"}, "server_url must have a valid host"),
        ({"metadata": {"row": {1, 2}}}, "metadata must be JSON serializable"),
        ({"metadata": {"row": "x" * (1 << 20)}}, "metadata size exceeds maximum allowed size of 1MB"),
    ],
)
def test_a_request_is_checked(values: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        request(**values)


def test_the_metadata_may_be_allowed_to_be_larger() -> None:
    set_max_metadata_size_bytes(2 << 20)
    try:
        assert request(metadata={"row": "x" * (1 << 20)}).max_tokens_total == 8192
    finally:
        set_max_metadata_size_bytes(1 << 20)
    with pytest.raises(ValueError, match="must be positive"):
        set_max_metadata_size_bytes(0)


def test_arguments_of_tools_are_read_from_json_and_dicts() -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}

    assert get_tool_call_info({"id": "call-1", "function": function}) == ("call-1", "add", {"a": 1})
    assert parse_tool_arguments({"a": 1}) == {"a": 1}
    for broken, message in [("{", "Invalid JSON arguments"), ("[1]", "Expected dict from JSON"), (1, "got int")]:
        with pytest.raises(ToolArgumentError, match=message) as caught:
            get_tool_call_info({"id": "call-2", "function": {"name": "add", "arguments": broken}})
        assert (caught.value.tool_call_id, caught.value.tool_name) == ("call-2", "add")


def test_a_call_without_readable_arguments_has_none() -> None:
    read = OpenAIFunctionCallSchema.from_openai_function_parsed_schema

    assert read(OpenAIFunctionParsedSchema(name="add", arguments='{"a": 1}'))[0].arguments == {"a": 1}
    assert read(OpenAIFunctionParsedSchema(name="add", arguments="[]")) == (
        OpenAIFunctionCallSchema(name="add", arguments={}),
        True,
    )


def test_the_media_of_a_tools_response_are_lists() -> None:
    assert ToolResponse(text="4").is_text_only()
    assert ToolResponse().is_empty()
    with pytest.raises(SchemaError, match="image must be a list"):
        ToolResponse.model_validate({"image": "picture"})


def test_a_registry_holds_each_name_once() -> None:
    registry, loop = AgentLoopRegistry(), Loop()
    registry.register(loop)

    with pytest.raises(ValueError, match="already registered"):
        registry.register(Loop())
    assert (registry.get("loop"), registry.list_names()) == (loop, ["loop"])
    assert (registry.unregister("loop"), registry.unregister("loop")) == (True, False)
    with pytest.raises(AgentLoopNotFoundError, match=r"Agent loop 'loop' not found. Available: \[\]"):
        get_agent_loop("loop")


def test_an_application_takes_what_code_does_to_it() -> None:
    app = create_app(Loop(), max_concurrent=3)
    app.state.started = True
    app.add_middleware(dict, allow_origins=["*"])
    app.include_router(app.router)

    @app.get("/health")  # type: ignore[untyped-decorator]  # as FastAPI's is not
    def health() -> str:
        return "ok"

    assert health() == "ok"
    with pytest.raises(ServeError, match="serves nothing"):
        serve_agent_loop(Loop(), port=9000)


def test_a_loop_is_validated() -> None:
    class Faulty(Loop):
        name = " "

        def get_tools(self, request: RolloutRequest) -> list[OpenAIFunctionToolSchema]:
            raise ValueError("no tools today")

        def run(self, ctx: RolloutContext) -> None:  # type: ignore[override]
            """Do nothing, and not as a coroutine."""

    good, bad = validate_agent_loop(Loop()), validate_agent_loop(Faulty())

    assert (bool(good), good.agent_name, good.tool_count) == (True, "loop", 1)
    assert [error.code for error in bad.errors] == ["MISSING_NAME", "GET_TOOLS_EXCEPTION", "RUN_NOT_ASYNC"]
    with pytest.raises(AgentLoopValidationError, match="no tools today"):
        bad.raise_if_invalid()
    assert [tool.function.name for tool in Loop().get_default_tools()] == ["add"]
