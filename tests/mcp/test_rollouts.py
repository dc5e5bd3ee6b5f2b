"""Rollouts for MCP tools, with a real FastMCP server and a script in place of the model; and `--osmosis-mcp`.

The server of a folder is imported as `python <folder>/main.py` would.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.osmosis_sdk.mcp_server import McpAgent, UnusableTools, offered_tools
from pytest_osmosis.host.deadline import CANCEL_AGAIN_S
from pytest_osmosis.models.base import ChatReply, Message
from pytest_osmosis.rollouts.agents import ChatContext, RolloutOutput
from tests.plugin.workspaces import Workspace
from tests.servers import DEADLINE_S, ChatServer, by_row, reply, tool_call
from tests.unit.git.repositories import commit, git
from tests.unit.host.core_host import core_host

pytest.importorskip("fastmcp", reason="fastmcp is not installed: see `make test-mcp`")


class Script:
    """Answers with one message after the other; the last one stays. `asked` keeps the messages and tools it got."""

    def __init__(self, *answers: Message) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[Message], Sequence[Mapping[str, Any]]]] = []

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any]
    ) -> ChatReply:
        self.asked.append((list(messages), tools))
        return ChatReply(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


def call(*calls: tuple[str, Any]) -> Message:
    texts = [(name, given if isinstance(given, str) else json.dumps(given)) for name, given in calls]
    functions = [{"name": name, "arguments": text} for name, text in texts]
    asked = [{"id": f"call_{n}", "type": "function", "function": function} for n, function in enumerate(functions)]
    return {"role": "assistant", "tool_calls": asked}


DONE: Message = {"role": "assistant", "content": "done"}


async def rolled(server: Any, *answers: Message, max_turns: int = 10) -> RolloutOutput:
    run: Any = {"row_index": 0, "run_index": 0, "max_turns": max_turns, "artifacts": "", "chat": Script(*answers).chat}
    ctx = ChatContext(prompt=[{"role": "user", "content": "?"}], metadata={}, **run)
    return await McpAgent(server, await offered_tools(server)).roll(ctx)


def add(a: float, b: float = 1) -> float:
    """Add two numbers."""
    return a + b


def fail() -> str:
    raise ValueError("no luck")


async def record() -> dict[str, Any]:
    return {"name": "Ada", "age": 36}


def text() -> str:
    return "a text"


def truth() -> bool:
    return True


def picture() -> Any:
    from fastmcp.utilities.types import Image

    return ["see:", Image(data=b"x", format="png")]


@pytest.fixture
def server() -> Any:
    from fastmcp import FastMCP

    mcp = FastMCP("tools")
    for function in (add, fail, record, text, truth, picture):
        mcp.tool(function)
    return mcp


@pytest.mark.parametrize(
    ("name", "given", "content"),
    [
        ("add", {"a": 20, "b": 22}, "42.0"),
        ("add", {"a": 1}, "2.0"),
        ("add", '{"a": "4"}', "5.0"),
        ("record", {}, '{"name": "Ada", "age": 36}'),
        ("record", "", '{"name": "Ada", "age": 36}'),
        ("text", {}, "a text"),
        ("truth", {}, "true"),
        ("picture", {}, "see:\n[image, image/png: not shown]"),
        ("fail", {}, "Error: Error calling tool 'fail': no luck"),
        ("add", "{a: 1}", "Error: Invalid JSON arguments: "),
        ("add", "[1]", "Error: Expected dict from JSON, got list"),
        ("multiply", {}, "Error: Unknown tool: "),
    ],
)
async def test_the_result_or_the_error_of_a_tool_is_a_message(server: Any, name: str, given: Any, content: str) -> None:
    output = await rolled(server, call((name, given)), DONE)

    is_error, told = content.startswith("Error: "), output.messages[-2]
    assert told["content"].startswith(content) if is_error else told["content"] == content
    assert (told["role"], told["tool_call_id"], output.messages[-1]) == ("tool", "call_0", DONE)
    assert output.metrics == {"tool_calls": 1, "tool_errors": int(is_error)}
    assert output.info == {}


async def test_a_tool_that_hangs_costs_its_rollout_alone(server: Any) -> None:
    begun, over = threading.Event(), threading.Event()

    def hangs() -> None:
        begun.set()
        over.wait()

    async def agent(ctx: ChatContext) -> Sequence[Message]:
        return (await McpAgent(server, tools).roll(ctx)).messages

    server.tool(hangs)
    tools = await offered_tools(server)
    with ChatServer(by_row({0: [tool_call("hangs", {})]}, reply("42"))) as model:
        async with core_host(model, agent, 2, agent_timeout_s=60) as host:
            host.run(0)
            await asyncio.to_thread(begun.wait)
            host.run(1)
            assert "boundary" not in await host.rollout(1)
            await host.clock.advance(60)
            await host.clock.advance(CANCEL_AGAIN_S)  # the client waits for its server
            assert (await host.rollout(0))["boundary"] == "timeout"
            over.set()


async def test_all_calls_of_a_turn_are_answered_in_their_order(server: Any) -> None:
    output = await rolled(server, call(("add", {"a": 1}), ("fail", {}), ("add", {"a": 2})), DONE)

    results = [(message["tool_call_id"], message["content"][:5]) for message in output.messages[2:-1]]
    assert results == [("call_0", "2.0"), ("call_1", "Error"), ("call_2", "3.0")]


async def test_the_last_turn_ends_a_rollout_that_still_calls_tools(server: Any) -> None:
    output = await rolled(server, call(("add", {"a": 1})), max_turns=2)

    assert [message["role"] for message in output.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert output.info == {"finish_reason": "max_turns"}


async def test_tools_are_offered_as_functions_with_their_whole_schema(server: Any) -> None:
    tools = {tool["function"]["name"]: tool for tool in await offered_tools(server)}

    assert tools["add"]["type"] == "function"
    function = tools["add"]["function"]
    assert function["description"] == "Add two numbers."
    assert function["parameters"]["type"] == "object"
    assert function["parameters"]["properties"]["b"] == {"default": 1, "type": "number"}
    assert function["parameters"]["required"] == ["a"]
    assert "description" not in tools["text"]["function"]
    assert tools["text"]["function"]["parameters"]["properties"] == {}


async def test_a_server_without_tools_and_names_that_a_model_cannot_call_are_refused() -> None:
    from fastmcp import FastMCP

    with pytest.raises(UnusableTools, match="the server has no tools"):
        await offered_tools(FastMCP("empty"))

    mcp = FastMCP("tools")
    for name in ("math/add", "good-name_1", "two words", "x" * 65):
        mcp.tool(name=name)(lambda: 1)

    with pytest.raises(UnusableTools, match=r"cannot call: .*math/add.*two words.*xxx.*: rename") as error:
        await offered_tools(mcp)
    assert "good-name_1" not in str(error.value)


async def test_rollouts_in_flight_share_the_lifespan_of_the_server() -> None:
    from fastmcp import FastMCP

    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Any) -> Any:
        events.append("begin")
        yield {}
        events.append("end")

    all_there = asyncio.Event()

    async def wait() -> str:
        events.append("call")
        if events.count("call") == 3:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), DEADLINE_S)
        return "ok"

    mcp = FastMCP("tools", lifespan=lifespan)
    mcp.tool(wait)
    outputs = await asyncio.gather(*[rolled(mcp, call(("wait", {})), DONE) for _ in range(3)])

    assert all(output.metrics == {"tool_calls": 1, "tool_errors": 0} for output in outputs)
    calls = [index for index, event in enumerate(events) if event == "call"]
    assert "end" not in events[calls[0] : calls[-1]]


MAIN = """
from server import mcp
from tools import *

if __name__ == "__main__":
    raise SystemExit("not to be run")
"""
SERVER = """
from fastmcp import FastMCP

mcp = FastMCP("sums")
"""
MULTIPLY = """
from server import mcp

@mcp.tool()
def multiply(first_val: float, second_val: float) -> float:
    '''Multiply two numbers.'''
    {}
    return first_val * second_val
"""
SCORED = ("--osmosis-dataset=data/x.jsonl", "--osmosis-eval-fn=rewards:score", "--osmosis-model=demo/arithmetic")
COMMAND = ("--osmosis-mcp=mcp", *SCORED)
FAST = "from fastmcp import FastMCP\n"
CALLED = "tool_calls   1.000  1.000  1.000     3"
FAILED = "tool_errors  1.000  1.000  1.000     3"


def make(workspace: Workspace, *, body: str = "pass", folder: str = "mcp", main: str = MAIN) -> None:
    """A folder like those of git-sync projects: packages called server and tools, in a folder called mcp."""
    workspace.eval(agent={"mcp": folder})
    workspace.write(f"{folder}/main.py", main)
    workspace.write(f"{folder}/server/__init__.py", "from server.sums import mcp\n")
    workspace.write(f"{folder}/server/sums.py", SERVER)
    workspace.write(f"{folder}/tools/__init__.py", '__all__ = ["math"]\n')
    workspace.write(f"{folder}/tools/math.py", MULTIPLY.format(body))


def test_the_tools_of_a_folder_that_a_command_or_a_config_names_are_called(workspace: Workspace) -> None:
    """A tool may import a sibling of its server when it is called."""
    make(workspace, body="import late; late.used()")
    workspace.write("mcp/late.py", "def used(): pass\n")

    result = workspace.run(*COMMAND)

    result.assert_outcomes(passed=3)
    assert "  agent: the tools of mcp, scored by rewards:score" in result.outlines
    assert "osmosis: 1 tool of mcp: multiply" in result.outlines
    assert CALLED in result.outlines
    assert FAILED not in result.outlines

    result = workspace.run("--osmosis-config=configs/eval/x.toml")

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines
    first = workspace.events("rollout")[0]
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "tool", "assistant"]
    workspace.run("--osmosis-from=latest", "--osmosis-rescore").assert_outcomes(passed=3)


def test_modules_of_the_same_names_do_not_meet(workspace: Workspace) -> None:
    """The workspace has modules `tools`, `server` and a package `mcp` of its own, which its reward function imports."""
    make(workspace)
    workspace.write("mcp/__init__.py", "raise OSError('not the package that fastmcp imports')\n")
    workspace.write("tools.py", "NAME = 'of the workspace'\n")
    workspace.write("server.py", "import tools\n\nNAME = tools.NAME\n")
    workspace.write(
        "rewards.py",
        "import server, tools\n\n"
        "async def score(solution_str, ground_truth):\n"
        "    import sys\n"
        "    assert sys.modules['tools'] is tools\n"
        "    return float(server.NAME == tools.NAME == 'of the workspace')\n",
    )

    result = workspace.run(*COMMAND)

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines


def test_a_folder_outside_of_the_workspace_may_be_typed(workspace: Workspace, tmp_path: Path) -> None:
    make(workspace)
    elsewhere = tmp_path / "elsewhere"
    (workspace.root / "mcp").rename(elsewhere)

    result = workspace.run(f"--osmosis-mcp={elsewhere}", *SCORED, "--osmosis-inline")

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines


def test_tools_that_raise_and_print_belong_to_their_rollout(workspace: Workspace) -> None:
    make(workspace, body="print('a tool printed this'); raise ValueError('broken tool')")

    result = workspace.run(*COMMAND)

    assert FAILED in result.outlines
    rollouts = workspace.events("rollout")
    assert all("a tool printed this" in str(event["output"]) for event in rollouts)
    assert all("Error calling tool 'multiply': broken tool" in str(event["messages"]) for event in rollouts)


@pytest.mark.parametrize(
    ("main", "text"),
    [
        ("import nothing_such", "mcp/main.py: does not load: ModuleNotFoundError: No module named 'nothing_such'"),
        ("x = 1", 'mcp/main.py: holds no FastMCP object; make one, like `mcp = FastMCP("tools")`, or import it'),
        (f"{FAST}a, b = FastMCP('a'), FastMCP('b')", "mcp/main.py: holds several FastMCP objects (a, b); call the one"),
        (f"{FAST}mcp = FastMCP('a')", "mcp/main.py: the server has no tools; register functions"),
        (
            f"{MAIN}\nmcp.run()",
            'mcp/main.py: calls run() when it is imported; guard it with `if __name__ == "__main__":`',
        ),
    ],
    ids=["import", "none", "several", "empty", "run"],
)
def test_a_server_that_cannot_be_used_is_an_error_before_a_request(workspace: Workspace, main: str, text: str) -> None:
    make(workspace, main=main)

    result = workspace.run(*COMMAND)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert text in result.stderr.str()


def test_the_server_of_a_commit(workspace: Workspace) -> None:
    make(workspace)
    git(workspace.root, "init")
    early = commit(workspace.root, {})
    workspace.write("mcp/tools/math.py", "raise OSError")

    result = workspace.run(*COMMAND, f"--osmosis-set=experiment.commit_sha={early}")

    result.assert_outcomes(passed=3)
    assert CALLED in result.outlines
    assert f"osmosis: 1 tool of {early[:7]}:mcp: multiply" in result.outlines


def test_the_example_passes_its_gate(workspace: Workspace) -> None:
    shutil.copytree(Path(__file__).resolve().parents[2] / "examples" / "mcp-tools", workspace.root, dirs_exist_ok=True)

    result = workspace.run("--osmosis-config=configs/eval/orders.toml", exits=0)

    assert "osmosis: 2 tools of mcp: multiply, subtract" in result.outlines
    summary = workspace.results("orders")["summary"]
    assert summary["eval_fns"]["rewards:right_price"]["mean"] == 1.0
    assert summary["eval_fns"]["rewards:used_tools"]["mean"] == 1.0
    calls = [len(event["messages"]) for event in workspace.events("rollout", "orders")]
    assert sorted(calls) == [5, 5, 5, 7, 7, 7]
