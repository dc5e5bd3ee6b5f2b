"""Agent loops of Osmosis 0.2, with the SDK if it is installed, and else with what stands in for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_osmosis.errors import CodeError
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.servers import ChatServer, by_row, reply, status, tool_call

HEAD = """
from osmosis_ai.rollout import (
    OpenAIFunctionParametersSchema, OpenAIFunctionPropertySchema, OpenAIFunctionSchema, OpenAIFunctionToolSchema,
    RolloutAgentLoop, RolloutContext, RolloutRequest, RolloutResult, create_app, execute_tool_calls, get_tool_call_info,
    create_tool_result, serialize_tool_result,
)

def tool(name="add", kind="object"):
    number = OpenAIFunctionPropertySchema(type="number")
    parameters = OpenAIFunctionParametersSchema(type=kind, properties={"a": number, "b": number}, required=["a", "b"])
    function = OpenAIFunctionSchema(name=name, description="Add two numbers", parameters=parameters)
    return OpenAIFunctionToolSchema(type="function", function=function)
"""
CALCULATOR = (
    HEAD
    + """
async def execute(call):
    call_id, name, arguments = get_tool_call_info(call)
    return create_tool_result(call_id, serialize_tool_result(arguments["a"] + arguments["b"]))

class Calculator(RolloutAgentLoop):
    name = "calculator"

    def __init__(self):
        self.seen = []

    def get_tools(self, request: RolloutRequest):
        return [tool()]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        self.seen.append(ctx.request.rollout_id)
        ctx.log_event("seen", tools=ctx.tools, debug=ctx.debug_enabled)
        messages = list(ctx.request.messages)
        for turn in range(ctx.request.max_turns):
            answer = await ctx.chat(messages, **ctx.request.completion_params)
            messages.append(answer.message)
            if not answer.has_tool_calls:
                break
            messages += await execute_tool_calls(answer.tool_calls, execute)
            ctx.record_tool_call(latency_ms=2.5)
        messages[-1]["request"] = ctx.request.model_dump(mode="json")
        messages[-1]["usage"] = answer.usage
        messages[-1]["seen"] = list(self.seen)
        return ctx.complete(messages, finish_reason="done", reward=0.0)

app = create_app(Calculator(), debug_dir="traces")
app.state.loop = app.add_middleware(dict, allow="*")

@app.get("/health")
def health():
    return "ok"

assert health() == "ok"
"""
)
INSTANCE = "loop = Calculator()\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, rows=1)


def loop_eval(workspace: Workspace, server: ChatServer | None, agent: str, **tables: Mapping[str, object]) -> Live:
    tables = {"agent": {"agent": agent, "max_turns": 4}, "evaluation": {"n": 2, "batch_size": 1}, **tables}
    return evaluated(workspace.config(server, **tables))


@pytest.mark.parametrize("name", ["loop", "Calculator"])
def test_a_loop_gets_its_request_and_its_tools(workspace: Workspace, name: str) -> None:
    workspace.rows([{"user_prompt": "2 + 3?", "system_prompt": "Be brief.", "ground_truth": "42", "level": 7}])
    workspace.write("server.py", CALCULATOR + INSTANCE)
    calls = [tool_call("add", {"a": 2, "b": 3}), reply("42")]

    with ChatServer(*calls, *calls) as server:
        sampling, env = {"temperature": 0.5}, {"ROLLOUT_DEBUG_DIR": "traces"}
        live = loop_eval(workspace, server, f"server:{name}", sampling=sampling, env=env)
        sent = server.bodies

    assert live.kinds() == ["passed"] * 2
    first, second = (event["messages"] for event in live.events("rollout"))
    assert [message["role"] for message in first] == ["system", "user", "assistant", "tool", "assistant"]
    assert first[3]["content"] == "5"
    assert "content" not in first[2]
    metadata = {"ground_truth": "42", "row_index": 0, "level": 7, "execution_mode": "eval", "run_index": 0}
    bounds = {"completion_params": {"temperature": 0.5}, "max_turns": 4, "max_tokens_total": 4096}
    place = {"rollout_id": "eval-0-run-0", "server_url": "http://local-rollout.local"}
    unset = dict.fromkeys(("tool_server_url", "api_key", "idempotency_key"))
    assert first[-1]["request"] == {**place, "messages": first[:2], "metadata": metadata, **bounds, **unset}
    assert first[-1]["usage"].keys() == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert second[-1]["seen"] == ["eval-0-run-0", "eval-0-run-1"]  # the instance is shared
    assert sent[0]["temperature"] == 0.5
    number = {"type": "number"}
    parameters = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    function = {"name": "add", "description": "Add two numbers", "parameters": parameters, "strict": False}
    assert sent[1]["tools"] == [{"type": "function", "function": function}]
    metrics = live.record(0).metrics["rollout"]
    assert (metrics["num_llm_calls"], metrics["num_tool_calls"], metrics["tool_latency_ms"]) == (2, 1, 2.5)
    assert live.events("rollout")[0]["fields"]["rollout"] == {"finish_reason": "done"}
    traced = [json.loads(line) for line in (workspace.root / "traces/eval-0-run-1.jsonl").read_text().splitlines()]
    assert [(each["event"], each["rollout_id"], each["debug"]) for each in traced] == [("seen", "eval-0-run-1", True)]


FAULTY = (
    HEAD
    + """
class Faulty(RolloutAgentLoop):
    name = "faulty"

    def get_tools(self, request):
        return {5: [tool("1st")], 6: [tool(kind="array")], 7: [{"type": "function"}], 8: None}.get(
            request.metadata["row_index"], [])

    async def run(self, ctx):
        row = ctx.request.metadata["row_index"]
        try:
            answer = await ctx.chat(ctx.request.messages)
        except Exception as error:
            return ctx.error(f"no answer: {error}")
        messages = [*ctx.request.messages, answer.message]
        if row == 0:
            return ctx.error("the tool has no power", final_messages=messages)
        if row == 1:
            raise ValueError("the agent broke")
        if row == 2:
            return messages
        if row == 3:
            return RolloutResult(status="ERROR", final_messages=[], finish_reason="error")
        if row == 4:
            return ctx.complete("42")
        if row == 9:
            ctx.record_tool_call(float("nan"))
        return ctx.complete(messages)

loop = Faulty()
"""
)


def test_the_failures_of_a_loop_are_its_own_and_keep_what_is_known(workspace: Workspace) -> None:
    """But an error that a loop made of a model's refusal is the model's."""
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(12)])
    workspace.write("server.py", FAULTY)
    too_long = status(400, {"error": {"message": "the context is too long"}})

    with ChatServer(by_row({10: [too_long]}, reply("42"))) as server:
        live = loop_eval(workspace, server, "server:loop", evaluation={"batch_size": 4})

    records = [live.record(row) for row in range(10)]
    assert [record.boundary for record in records] == ["agent"] * 9 + [None]
    assert [record.error.partition(", got")[0] if record.error else None for record in records] == [
        "the tool has no power",
        "ValueError: the agent broke",
        "server:loop.run() must return ctx.complete(...) or ctx.error(...)",
        "ended with status 'ERROR'",
        "server:loop.run(): final_messages must be a list of messages",
        "server:loop.get_tools(): the name of tool 0 must be a letter or an underscore, then letters, digits and "
        "underscores",
        'server:loop.get_tools(): tool add: parameters.type must be "object"',
        "server:loop.get_tools(): tool 0 must be an OpenAIFunctionToolSchema",
        "server:loop.get_tools() must return a list of OpenAIFunctionToolSchema",
        None,
    ]
    assert records[0].usage is not None
    assert records[9].metrics["rollout"].keys() == {"num_llm_calls", "llm_latency_ms", "num_tool_calls"}
    assert [message["role"] for message in live.events("rollout")[0]["messages"]] == ["user", "assistant"]
    assert live.record(10).boundary == "model"
    assert "the context is too long" in (live.record(10).error or "")
    [completed] = [event for event in live.events("rollout") if event["row"] == 11]
    assert "fields" not in completed  # its finish reason is the model's


@pytest.mark.parametrize(
    ("code", "agent", "message"),
    [
        (f"{CALCULATOR}class Odd(Calculator):\n    def __init__(self, key): ...\n", "Odd", "does not load: TypeError"),
        ("class RolloutAgentLoop: pass\nclass Loop(RolloutAgentLoop): pass\n", "Loop", "not the one of osmosis_ai"),
        (f"{HEAD}class Odd(RolloutAgentLoop):\n    name = 'x'\n    run = None\n", "Odd", "does not define get_tools"),
        (f"{HEAD}class Nameless(RolloutAgentLoop): ...\n", "Nameless", "must define a 'name' class attribute"),
        (f"{CALCULATOR}loop = object()\n", "loop", "must be `async def rollout(ctx)`, a class that derives"),
    ],
)
def test_a_loop_that_cannot_run_is_refused(workspace: Workspace, code: str, agent: str, message: str) -> None:
    workspace.write("server.py", code)

    with pytest.raises(CodeError) as caught:
        loop_eval(workspace, None, f"server:{agent}")

    assert message in str(caught.value)


def test_a_loop_whose_run_cannot_be_awaited_says_so(workspace: Workspace) -> None:
    workspace.write("server.py", f"{CALCULATOR}{INSTANCE}Calculator.run = lambda self, ctx: ctx.complete([])\n")

    live = loop_eval(workspace, None, "server:loop")

    text = "server:loop.run(ctx) must be awaitable: define `async def run(self, ctx)`"
    assert [(live.record(0, run).boundary, live.record(0, run).error) for run in (0, 1)] == [("agent", text)] * 2
