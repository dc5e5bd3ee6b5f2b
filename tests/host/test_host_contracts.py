"""The forms that user code may have, the errors for other forms, and the bounds of one rollout.

Agent loops of Osmosis 0.2 run with the SDK if it is installed, and else with what stands in for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.errors import CodeError
from pytest_osmosis.report.summary import remark_lines
from pytest_osmosis.results.publish import published
from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated
from tests.servers import ChatServer, by_row, completion, data, reply, status, tool_call

WORKFLOW = """
from pytest_osmosis import AgentWorkflow, AgentWorkflowOutput, Grader

class Flow(AgentWorkflow):
    async def run(self, ctx):
        reply = await ctx.chat(ctx.prompt)
        return AgentWorkflowOutput(messages=[*ctx.prompt, reply.message])

class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, rows=2)


def evaluate_entrypoint(workspace: Workspace, code: str, name: str = "main.py", **files: str) -> Live:
    """Run an eval of the rollout `mine` with this entrypoint, on a server that answers 42."""
    workspace.write(f"rollouts/mine/{name}", code)
    for file, text in files.items():
        workspace.write(f"rollouts/mine/{file}.py", text)
    experiment = {"rollout": "mine", "entrypoint": name}
    scoring = {"eval_fns": [] if "Grader" in code else ["rewards:exact"]}
    with ChatServer(reply("42")) as server:
        live = evaluated(workspace.config(server, experiment=experiment, scoring=scoring))
        assert set(asked_rows(server).values()) <= {1}
    return live


def entrypoint_error(workspace: Workspace, code: str, **files: str) -> str:
    with pytest.raises(CodeError) as caught:
        evaluate_entrypoint(workspace, code, **files)
    return str(caught.value)


def test_the_context_identifies_its_run(workspace: Workspace) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            assert ctx.prompt == [{"role": "user", "content": f"row {ctx.row_index}"}]
            assert ctx.metadata == {"user_prompt": f"row {ctx.row_index}", "ground_truth": "42"}
            assert ctx.run_index in (0, 1) and ctx.max_turns == 3 and ctx.config is None
            (ctx.artifacts_dir / "note.txt").write_text("kept")
            ctx.prompt.append("spoilt"), ctx.metadata.clear()
            return [{"role": "assistant", "content": "42"}]
        """
    )
    live = evaluated(workspace.config(None, evaluation={"n": 2}, agent={"agent": "agent:rollout", "max_turns": 3}))
    assert live.kinds() == ["passed"] * 4
    assert live.run_files()["artifacts/row1-run1/note.txt"] == "kept"


def test_a_workflow_and_a_grader_may_have_configs_and_sibling_modules(workspace: Workspace) -> None:
    code = """
from dataclasses import dataclass, field
from helper import answer_of
from pytest_osmosis import AgentWorkflow, AgentWorkflowConfig, Grader

@dataclass
class Style(AgentWorkflowConfig):
    word: str = "sum"
    times: int = 1
    seen: list = field(default_factory=list)

class GraderConfig:
    def __init__(self): self.right = "42"
workflow_config, grader_config = Style(times=2), GraderConfig()

class Flow(AgentWorkflow):
    async def run(self, ctx):
        assert self.config is ctx.config and self.config is not workflow_config
        assert (ctx.config.word, ctx.config.times, workflow_config.times) == ("sum", 2, 2)
        self.config.seen.append(ctx.row_index)
        assert self.config.seen == [ctx.row_index], "each run has a copy of its own"
        await ctx.chat(ctx.prompt)

class Special(Flow):  # then the class above does not count
    pass

class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(answer_of(ctx.sample.messages) == self.config.right))
"""
    helper = "def answer_of(messages):\n    return messages[-1]['content']\n"
    live = evaluate_entrypoint(workspace, code, helper=helper)
    assert live.kinds() == ["passed"] * 2
    assert dict(live.record(0).scores) == {"reward": 1.0}


@pytest.mark.parametrize("key", ["model", "n", "stream"])
def test_ctx_chat_takes_no_key_that_the_run_itself_sets(workspace: Workspace, server: ChatServer, key: str) -> None:
    workspace.agent(f"async def rollout(ctx):\n    await ctx.chat(ctx.prompt, {key}=2)\n")

    live = evaluated(workspace.config(server))

    assert live.kinds() == ["error"] * 2
    assert str(live.record(0).error).startswith(f"TypeError: ctx.chat takes no {key}: ")
    assert server.requests == []


@pytest.mark.parametrize("name", ["types.py", "json.py", "calendar.py"])
def test_an_entrypoint_named_like_another_module_does_not_replace_it(workspace: Workspace, name: str) -> None:
    module = name.removesuffix(".py")
    check = f"import {module} as theirs\nassert 'rollouts' not in theirs.__file__, theirs\n"
    live = evaluate_entrypoint(
        workspace, WORKFLOW.replace("        reply =", f"        exec({check!r})\n        reply ="), name
    )
    assert live.kinds() == ["passed"] * 2


OTHER_FLOW = "class Other(Flow.__mro__[1]):\n    async def run(self, ctx): pass\n"
OTHER_JUDGE = "class Other(Judge.__mro__[1]):\n    async def grade(self, ctx): pass\n"
ONLY_A_GRADER = "class Grader: pass\nclass Mine(Grader):\n    async def grade(self, ctx): pass\n"
INVALID_ENTRYPOINTS = {
    "main.py: must hold one concrete AgentWorkflow, found 2: Flow, Other": WORKFLOW + OTHER_FLOW,
    "main.py: must hold one concrete Grader, found 2: Judge, Other": WORKFLOW + OTHER_JUDGE,
    "has no AgentWorkflow": ONLY_A_GRADER,
    "No module named 'no_such_module'": "import no_such_module  # Grader",
    "does not load: SystemExit: 3": "import sys\nsys.exit(3)  # Grader",
}


@pytest.mark.parametrize("message", INVALID_ENTRYPOINTS)
def test_an_invalid_entrypoint_is_a_code_error(workspace: Workspace, message: str) -> None:
    assert message in entrypoint_error(workspace, INVALID_ENTRYPOINTS[message])


def test_classes_of_an_sdk_without_contexts_are_refused(workspace: Workspace) -> None:
    workspace.write("osmosis_ai/__init__.py", "")
    workspace.write("osmosis_ai/rollout.py", "class AgentWorkflow: pass\nclass Grader: pass\n")
    code = """
from osmosis_ai.rollout import AgentWorkflow
class Flow(AgentWorkflow):
    async def run(self, ctx): pass
"""
    message = entrypoint_error(workspace, code)
    assert "Flow: derives from a class of osmosis_ai, but osmosis_ai.rollout.context cannot be imported" in message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("rollout = 3\n", "must be `async def rollout(ctx)`, a class that derives"),
        ("async def rollout(ctx):\n    yield []\n", "must be `async def rollout(ctx)`"),
        ("def rollout(ctx):\n    yield []\n", "must be `async def rollout(ctx)`"),
        (
            "import abc\nfrom pytest_osmosis import AgentWorkflow\nclass rollout(AgentWorkflow):\n"
            "    @abc.abstractmethod\n    def tools(self): ...\n",
            "is abstract: it does not define run, tools",
        ),
    ],
)
def test_an_invalid_agent_is_a_code_error(workspace: Workspace, code: str, message: str) -> None:
    workspace.agent(code)
    with pytest.raises(CodeError) as caught:
        evaluated(workspace.config(None))
    assert str(caught.value).startswith("agent:rollout: ")
    assert message in str(caught.value)


LOOP = """
async def rollout(ctx):
    while True:
        await ctx.chat(ctx.prompt)
"""
GRACEFUL = """
from pytest_osmosis import BoundError

async def rollout(ctx):
    messages = list(ctx.prompt)
    while True:
        try:
            messages.append((await ctx.chat(messages)).message)
        except BoundError as error:
            assert error.bound.endswith("= 2") and error.boundary == "agent"
            return messages
"""
CALLS = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
CALLING = {"role": "assistant", "content": None, "tool_calls": CALLS}
PRICES = {"served": {"input": 1000.0, "output": 1000.0}}
"""A tenth of a cent for a token."""
USAGE = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}


def rolled(workspace: Workspace, answer: Any, code: str = LOOP, **tables: Mapping[str, Any]) -> tuple[Live, list[int]]:
    """Run an eval, and return it with the numbers of requests of each row."""
    workspace.agent(code)
    with ChatServer(answer) as server:
        return evaluated(workspace.config(server, **tables)), sorted(asked_rows(server).values())


THREE_TURNS = {"agent": {"agent": "agent:rollout", "max_turns": 3}}
BOUNDS: Mapping[str, tuple[dict[str, Any], int, str]] = {
    "[agent] max_turns = 3": (THREE_TURNS, 3, "the rollout asked the model 4 times"),
    "[limits.rollout] tokens = 120": ({"tokens": 120}, 3, "the rollout used 150 tokens"),
    "[limits.rollout] cost_usd = 0.1": ({"cost_usd": 0.1}, 2, "the rollout spent $0.10"),
    "[limits.rollout] tool_calls = 4": ({"tool_calls": 4}, 3, "the model asked for 6 tool calls"),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_rollout_that_met_a_bound_asks_no_more(workspace: Workspace, bound: str) -> None:
    given, asked, text = BOUNDS[bound]
    tables = given if given is THREE_TURNS else {"limits": {"rollout": given}, "prices": PRICES}
    live, requests = rolled(workspace, data(completion(CALLING, usage=USAGE)), **tables)

    error = f"{text}: {bound}"
    assert requests == [asked, asked]
    assert [(live.record(row).boundary, live.record(row).error) for row in (0, 1)] == [("agent", error)] * 2
    assert live.record(0).bound == bound
    assert live.results.causes[0].text == error
    assert live.run.engine.stopped is None or live.run.engine.stopped.reason == "closed"


def test_the_default_of_max_turns_bounds_nothing(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent("async def rollout(ctx):\n    for _ in range(12):\n        await ctx.chat(ctx.prompt)\n")

    assert evaluated(workspace.config(server)).kinds() == ["passed"] * 2
    assert set(asked_rows(server).values()) == {12}


def test_an_agent_that_stops_at_a_bound_keeps_its_answer(workspace: Workspace) -> None:
    live, requests = rolled(workspace, reply("42"), GRACEFUL, agent={"agent": "agent:rollout", "max_turns": 2})

    assert requests == [2, 2]
    assert live.kinds() == ["passed"] * 2
    assert [live.record(row).bound for row in (0, 1)] == ["[agent] max_turns = 2"] * 2
    assert published(live.results)["rows"][0]["runs"][0]["bound"] == "[agent] max_turns = 2"
    assert "2 runs met [agent] max_turns = 2 and were scored as far as they got, 2 passed (first: row0-run0)" in (
        remark_lines(live.results)
    )


@pytest.mark.parametrize(
    ("tables", "n_asked"),
    [
        ({"agent": {"agent": "agent:rollout", "max_turns": 4}}, 4),
        ({"evaluation": {"batch_size": 1}, "limits": {"rollout": {"tokens": 100}}}, 2),
    ],
    ids=["sent at once", "one in flight, while others wait"],
)
def test_requests_of_a_rollout_that_wait_keep_to_its_bound(workspace: Workspace, tables: Any, n_asked: int) -> None:
    code = """
    async def rollout(ctx):
        await asyncio.gather(*(ctx.chat(ctx.prompt) for _ in range(9)), return_exceptions=True)
    """
    _, requests = rolled(workspace, reply("42", usage=USAGE), code, **tables)

    assert requests == [n_asked, n_asked]


@pytest.mark.parametrize("bound", [{"tokens": 1000}, {"cost_usd": 5.0}])
def test_a_bound_stops_the_eval_if_the_server_reports_no_usage(workspace: Workspace, bound: dict[str, Any]) -> None:
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(20)])
    tables: dict[str, Any] = {"limits": {"rollout": bound, "max_errors": 10_000}, "prices": PRICES}
    live, requests = rolled(workspace, reply("42", usage=None), **tables)

    [name] = bound
    assert set(requests) == {1}
    assert len(requests) < 20
    assert live.record(0).boundary == "provider"
    assert live.stop.text.endswith(f"[limits.rollout] {name} cannot be kept: the server does not report token usage")


OWN_CLIENT = """
from openai import {client}

async def rollout(ctx):
    client = {client}(base_url=ctx.base_url, api_key=ctx.api_key)
    while True:
        {waits}client.chat.completions.create(model="any", messages=ctx.prompt)
"""


@pytest.mark.parametrize(("client", "waits"), [("AsyncOpenAI", "await "), ("OpenAI", "")])
def test_a_client_of_the_agents_own_is_refused_in_the_same_way(workspace: Workspace, client: str, waits: str) -> None:
    tables: dict[str, Any] = {**THREE_TURNS, "model": {"max_retries": 3}}
    live, requests = rolled(workspace, reply("42"), OWN_CLIENT.format(client=client, waits=waits), **tables)

    error = "the rollout asked the model 4 times: [agent] max_turns = 3"
    assert requests == [3, 3]
    assert [(live.record(row).boundary, live.record(row).error) for row in (0, 1)] == [("agent", error)] * 2
    assert live.record(0).bound == "[agent] max_turns = 3"


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
