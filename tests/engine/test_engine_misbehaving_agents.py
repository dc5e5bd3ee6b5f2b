"""User code that hangs, crashes, floods or returns rubbish: it costs its own rollout, and its siblings pass."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated
from tests.servers import ChatServer

CULPRIT = 1
FAST = {"agent_workflow_timeout_s": 2, "batch_size": 4}


@dataclass
class Bad:
    """An agent whose row 1 does `code`; the others chat. `most` bounds how often a sibling may be asked for."""

    name: str
    code: str
    boundary: str | None
    error: str
    most: int = 1
    details: str = ""


def agent_with(code: str) -> str:
    indented = "\n".join(f"            {line}" for line in code.splitlines())
    return f"""
        async def rollout(ctx):
            if ctx.row_index == {CULPRIT}:
                return await bad(ctx)
            reply = await ctx.chat(ctx.prompt)
            await asyncio.sleep(0.2)
            return [*ctx.prompt, reply.message]

        async def bad(ctx):
{indented}
    """


def run_with(workspace: Workspace, server: ChatServer, code: str, **evaluation: object) -> Live:
    workspace.agent(agent_with(code))
    return evaluated(workspace.config(server, evaluation={**FAST, **evaluation}))


HANGS = [
    Bad("busy loop", "while True: pass", "timeout", "held the event loop", details="while True: pass"),
    Bad("sleep", "time.sleep(1000)", "timeout", "held the event loop", details="time.sleep(1000)"),
    Bad(
        "busy loop in a subtask",
        "async def spin():\n    while True: pass\nawait asyncio.gather(spin(), asyncio.sleep(0))",
        "timeout",
        "held the event loop",
        details="while True: pass",
    ),
    Bad(
        "busy loop in a task group",
        "async def spin():\n    while True: pass\n"
        "async with asyncio.TaskGroup() as group:\n    group.create_task(spin())",
        "timeout",
        "held the event loop",
        details="while True: pass",
    ),
    Bad(
        "backtracking regex",
        "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')",
        "timeout",
        "held the event loop",
        details="re.match",
    ),
    Bad("async sleep", "await asyncio.sleep(1000)", "timeout", "took longer than 2 s", details="asyncio.sleep(1000)"),
    Bad(
        "an error instead of its cancellation",
        "try:\n    await asyncio.sleep(1000)\nexcept asyncio.CancelledError:\n    raise ValueError('no')",
        "timeout",
        "took longer than 2 s",
    ),
    Bad(
        "one cancellation swallowed",
        "try:\n    await asyncio.sleep(1000)\nexcept asyncio.CancelledError:\n    return ctx.prompt",
        "timeout",
        "took longer than 2 s",
    ),
    Bad(
        "every cancellation swallowed",
        "while True:\n    try:\n        await asyncio.sleep(1000)\n    except asyncio.CancelledError:\n        pass",
        "timeout",
        "could not be interrupted",
        most=2,
        details="asyncio.sleep(1000)",
    ),
    Bad(
        "every interrupt swallowed",
        "spins = 0\nwhile True:\n    try:\n        while True: spins += 1\n"
        "    except BaseException:\n        spins = 0",
        "timeout",
        "could not be interrupted",
        most=2,
        details="spins += 1",
    ),
]

ENDS = [
    Bad("sys.exit", "sys.exit(3)", "agent", "SystemExit: 3", details="sys.exit(3)"),
    Bad(
        "sys.exit in a subtask",
        "async def leave():\n    sys.exit(3)\nawait asyncio.create_task(leave())",
        "agent",
        "SystemExit: 3",
        details="sys.exit(3)",
    ),
    Bad("os._exit at once", "os._exit(0)", "agent", "ended its process twice (exit status 0)", most=2),
    Bad(
        "os._exit after an answer",
        "await ctx.chat(ctx.prompt)\nos._exit(7)",
        "agent",
        "ended its process twice (exit status 7)",
        most=2,
    ),
    Bad("SIGKILL to itself", "os.kill(os.getpid(), 9)", "agent", "ended its process twice (SIGKILL)", most=2),
    Bad(
        "KeyboardInterrupt", "raise KeyboardInterrupt", "agent", "KeyboardInterrupt", details="raise KeyboardInterrupt"
    ),
    Bad(
        "an error whose text raises",
        "class Odd(Exception):\n    def __str__(self): raise ValueError('no')\nraise Odd",
        "agent",
        "Odd",
    ),
    Bad("its own cancellation", "asyncio.current_task().cancel()\nawait asyncio.sleep(0)", "agent", "CancelledError"),
    Bad("every descriptor closed", "os.closerange(3, 1024)", "agent", "ended its process twice", most=2),
    Bad("a stopped loop", "asyncio.get_running_loop().stop()\nraise ValueError('stopped')", "agent", "stopped"),
]

RUBBISH = [
    Bad("a string", "return 'hello'", "agent", "must return a list of messages or None, got str"),
    Bad("None without a chat", "return None", "agent", "never called ctx.chat"),
    Bad("messages that are no dicts", "return ['hi']", "agent", "message 0 must be a dict"),
    Bad("a role that is no string", "return [{'role': 1}]", "agent", "message 0 must be a dict"),
    Bad("a generator", "return (message for message in ctx.prompt)", "agent", "got generator"),
    Bad(
        "a circle",
        "message = {'role': 'assistant'}\nmessage['self'] = message\nreturn [message]",
        "agent",
        "message",
    ),
    Bad(
        "an object whose text raises",
        "class Odd:\n    def __str__(self): raise ValueError('no text')\n"
        "return [{'role': 'assistant', 'content': Odd()}]",
        "agent",
        "no text",
    ),
    Bad(
        "a nest too deep",
        "deep = []\nfor _ in range(100_000):\n    deep = [deep]\nreturn [{'role': 'assistant', 'content': deep}]",
        "agent",
        "",
    ),
    Bad("a prompt that was spoilt", "ctx.prompt = object()\nraise ValueError('spoilt')", "agent", "spoilt"),
]


@pytest.mark.parametrize("bad", [*HANGS, *ENDS, *RUBBISH], ids=lambda bad: bad.name)
def test_an_agent_that_misbehaves_costs_its_own_run(workspace: Workspace, server: ChatServer, bad: Bad) -> None:
    live = run_with(workspace, server, bad.code)
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    record = live.record(CULPRIT)
    assert record.boundary == bad.boundary
    assert bad.error in str(record.error)
    assert bad.details in live.outcome(CULPRIT).text
    assert "pytest_osmosis/host" not in live.outcome(CULPRIT).text
    asked = asked_rows(server)
    assert all(1 <= asked[row] <= bad.most for row in (0, 2, 3)), asked
    assert asked[CULPRIT] <= bad.most


HARMLESS = [
    Bad("10 MB of print", "for _ in range(100_000):\n    print('x' * 100)", None, ""),
    Bad("bytes", "sys.stdout.buffer.write(b'bytes')", None, ""),
    Bad("10 MB in one print", "print('x' * 10_000_000)", None, ""),
    Bad("raw output", "os.write(1, b'{}\\n' * 1000)\nos.write(2, b'{}\\n' * 1000)", None, ""),
    Bad("stdin", "assert sys.stdin.read() == ''", None, ""),
    Bad("subprocesses", "subprocess.run(['sh', '-c', 'echo out; echo err >&2; cat'], check=True)", None, ""),
    Bad("a forgotten task that leaves", "async def leave():\n    sys.exit(3)\nasyncio.create_task(leave())", None, ""),
    Bad("a process that stays", "subprocess.Popen(['sleep', '1000'])", None, ""),
    Bad("a thread that stays", "import threading\nthreading.Thread(target=time.sleep, args=(1000,)).start()", None, ""),
    Bad("a fork that ends", "if not os.fork():\n    os._exit(0)", None, ""),
    Bad("a fork that sleeps", "if not os.fork():\n    time.sleep(1000)", None, ""),
    Bad("a fork that returns", "os.fork()", None, ""),
    Bad("a fork that raises", "if not os.fork():\n    raise ValueError('in the child')", None, ""),
]


def test_a_conversation_of_20_mb_arrives(workspace: Workspace, server: ChatServer) -> None:
    big = "[{'role': 'user', 'content': 'x' * 20_000_000}, {'role': 'assistant', 'content': '42'}]"
    live = run_with(workspace, server, f"return {big}", agent_workflow_timeout_s=30)
    assert live.kinds() == ["passed"] * 4


@pytest.mark.parametrize("bad", HARMLESS, ids=lambda bad: bad.name)
def test_what_an_agent_does_beside_its_conversation_harms_nothing(
    workspace: Workspace, server: ChatServer, bad: Bad
) -> None:
    live = run_with(workspace, server, f"{bad.code}\nawait ctx.chat(ctx.prompt)", agent_workflow_timeout_s=30)
    assert live.kinds() == ["passed"] * 4
    assert asked_rows(server) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_runs_that_block_in_turn_use_up_their_own_time_alone(workspace: Workspace, server: ChatServer) -> None:
    """Each of six holds the loop for 0.6 s, in one go, within a deadline of 2 s."""
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(6)])
    workspace.agent("async def rollout(ctx):\n    await ctx.chat(ctx.prompt)\n    time.sleep(0.6)\n")
    live = evaluated(workspace.config(server, evaluation={"agent_workflow_timeout_s": 2, "batch_size": 6}))
    assert live.kinds() == ["passed"] * 6


def test_a_sibling_waits_out_another_run_s_hang(workspace: Workspace) -> None:
    """Row 1 holds the loop for the whole of its deadline; the others' answers come after it, and count."""
    workspace.agent(
        """
        async def rollout(ctx):
            if ctx.row_index == 1:
                while True: pass
            await asyncio.sleep(1)
            return [{"role": "assistant", "content": "42"}]
        """
    )
    live = evaluated(workspace.config(None, evaluation={"agent_workflow_timeout_s": 2, "batch_size": 4}))
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert live.record(1).boundary == "timeout"


def test_a_task_left_behind_that_holds_the_loop_is_ended(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(
        """
        async def spin():
            await asyncio.sleep(0)
            while True: pass
        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
            if ctx.row_index == 1:
                asyncio.create_task(spin())
        """
    )
    live = evaluated(workspace.config(server, evaluation={"agent_workflow_timeout_s": 2, "batch_size": 1}))
    assert live.kinds() == ["passed"] * 4


def test_what_a_run_prints_is_bounded_and_its_own(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(
        """
        import logging, warnings
        async def rollout(ctx):
            print("begin", ctx.row_index)
            await ctx.chat(ctx.prompt)
            print("x" * 1_000_000)
            await asyncio.to_thread(print, "end", ctx.row_index, file=sys.stderr)
            logging.getLogger("mine").warning("logged %d", ctx.row_index)
            warnings.warn(f"warned {ctx.row_index}")
        """
    )
    live = evaluated(workspace.config(server))
    for row in range(4):
        sections = dict(live.outcome(row).sections)
        assert sections["stdout"].startswith(f"begin {row}\n")
        assert sections["stdout"].endswith(f"x\nend {row}\n")
        assert "characters left out" in sections["stdout"]
        assert len(sections["stdout"]) < 100_000
        assert f"logged {row}" in sections["log"]
        assert f"warned {row}" in sections["warnings"]
