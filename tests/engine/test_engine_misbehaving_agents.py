"""User code that hangs, crashes, floods, changes or returns garbage costs its own rollout; and the log of hosts.

Agents misbehave together in one eval, each in its own row; further rows chat. What hosts do to objects and errors of
every kind is in tests/hostile/test_user_code.py.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from pytest_osmosis.engine import host_connection
from pytest_osmosis.engine.host_connection import HEAD_BYTES, MOST_LOG_BYTES, TAIL_BYTES, HostConnection, bound_log
from pytest_osmosis.host.main import COLLECT_AFTER, COLLECT_AFTER_LOADING
from pytest_osmosis.host.user_errors import CANCELLED
from pytest_osmosis.processes.child import PrestartedHost
from pytest_osmosis.record.journal import replay
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import UNINTERRUPTIBLE
from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated, running
from tests.host_clock import HostClock
from tests.servers import ChatServer, held, reply

pytestmark = pytest.mark.slow

SIBLINGS = 4


@pytest.fixture
def clock(tmp_path: Path) -> HostClock:
    return HostClock(tmp_path / "clock")


def holds(live: Live, workspace: Workspace, n: int = 1) -> None:
    """Wait until `n` pieces of code have begun to hold the loop: each leaves a file before."""
    live.wait_for(lambda: len(list(workspace.root.glob("holds-*"))) == n, f"for {n} that hold the loop")


@dataclass(frozen=True)
class Bad:
    """An agent that runs `code`, and its expected failure: its boundary, and text in error and details."""

    name: str
    code: str
    error: str
    details: str = ""
    boundary: str = "agent"


def written(workspace: Workspace, server: ChatServer, codes: Sequence[str], **evaluation: object) -> Path:
    """Write an eval whose first rows run `codes`; the others chat slowly."""
    agents = "\n".join(f"async def bad{row}(ctx):\n{indent(code, '    ')}" for row, code in enumerate(codes))
    names = ", ".join(f"bad{row}" for row in range(len(codes)))
    workspace.agent(
        f"{agents}\n"
        f"BAD = [{names}]\n"
        "async def rollout(ctx):\n"
        "    if ctx.row_index < len(BAD):\n"
        "        return await BAD[ctx.row_index](ctx)\n"
        "    reply = await ctx.chat(ctx.prompt)\n"
        "    await asyncio.sleep(0.2)\n"
        "    return [*ctx.prompt, reply.message]\n"
    )
    rows = range(len(codes) + SIBLINGS)
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in rows])
    return workspace.config(server, evaluation={"batch_size": len(rows), **evaluation})


def check(live: Live, server: ChatServer, bads: Sequence[Bad], *, most: int) -> None:
    """Check that each bad run failed as expected, the others passed, and none was rolled out more than `most` times."""
    for row, bad in enumerate(bads):
        record, text = live.record(row), live.outcome(row).text
        assert (bad.name, record.boundary == bad.boundary) == (bad.name, True), record
        assert (bad.name, bad.error in str(record.error)) == (bad.name, True), record
        assert (bad.name, bad.details in text) == (bad.name, True), text
        assert (bad.name, "pytest_osmosis/host" in text) == (bad.name, False), text
    assert live.kinds() == ["error"] * len(bads) + ["passed"] * SIBLINGS
    starts = Counter(event["row"] for event in live.events("start"))
    assert max(starts.values()) <= most, starts
    assert max(asked_rows(server)[row] for row in range(len(bads), len(bads) + SIBLINGS)) <= most
    assert {record.attempt for record in live.results.records} <= set(range(1, most + 1))


SPIN = "async def spin():\n    HOLD\n    while True: pass\n"
HANGS = [
    Bad(name, code, "blocked the event loop until its time limit of 60 s (agent_workflow_timeout_s)", stack, "timeout")
    for name, code, stack in (
        ("a loop", "HOLD\nwhile True: pass", "while True: pass"),
        ("a sleep", "HOLD\ntime.sleep(1000)", "time.sleep(1000)"),
        ("a loop in a subtask", f"{SPIN}await asyncio.gather(spin(), asyncio.sleep(0))", "while True: pass"),
        ("a regex", "import re\nHOLD\nre.match(r'(a+)+$', 'a' * 64 + 'b')", "re.match"),
        ("a loop of prints", "HOLD\nwhile True: print('x')", "while True: print"),
        (
            "an interrupt swallowed",
            "HOLD\ntry:\n    time.sleep(1000)\nexcept BaseException:\n    return ctx.prompt",
            "time.sleep(1000)",
        ),
    )
]


def test_agents_that_hold_the_loop_are_interrupted_where_they_are(
    workspace: Workspace, server: ChatServer, clock: HostClock
) -> None:
    codes = [bad.code.replace("HOLD", f"open('holds-{row}', 'w').close()") for row, bad in enumerate(HANGS)]
    config = written(workspace, server, codes, agent_workflow_timeout_s=60)
    with running(config, environ=clock.environ) as live:
        for n in range(1, len(HANGS) + 1):
            holds(live, workspace, n)
            clock.advance(60)
        live.wait()
    check(live, server, HANGS, most=1)
    assert not live.run.engine.notices.texts, "the host lived on"
    texts = [live.outcome(row).text for row in range(len(HANGS))]
    assert not [text for text in texts if "in run_forever" in text], "a stack begins with the user's code"


SOFT = [
    Bad("sys.exit", "sys.exit(3)", "SystemExit: 3", "sys.exit(3)"),
    Bad(
        "sys.exit in a subtask",
        "async def leave():\n    sys.exit(3)\nawait asyncio.create_task(leave())",
        "SystemExit: 3",
        "sys.exit(3)",
    ),
    Bad("its own cancellation", "asyncio.current_task().cancel()\nawait asyncio.sleep(0)", "CancelledError"),
    Bad(
        "a chat in a loop of its own",
        "await asyncio.to_thread(asyncio.run, ctx.chat(ctx.prompt))",
        "run_coroutine_threadsafe",
    ),
    Bad("a stopped loop", "asyncio.get_running_loop().stop()\nraise ValueError('stopped')", "stopped"),
    Bad("input", "input()", "EOFError"),
    Bad("a breakpoint", "breakpoint()", "breakpoint() has no terminal here; add --osmosis-inline"),
    Bad("a debugger", "import pdb\npdb.set_trace()", "has no terminal here; add --osmosis-inline"),
    Bad(
        "a number for text",
        "return [*ctx.prompt, {'role': 'assistant', 'content': 42}]",
        "message 1: content must be a string, a list of parts or None, got int: 42",
    ),
    Bad("a string", "return 'hello'", "must return a list of messages or None, got str"),
    Bad("None without a chat", "return None", "never called ctx.chat"),
    Bad("messages that are no dicts", "return ['hi']", "message 0 must be a dict"),
    Bad("a prompt that was spoilt", "ctx.prompt = object()\nraise ValueError('spoilt')", "spoilt"),
]


def test_errors_exits_and_invalid_conversations_fail_at_the_agent(workspace: Workspace, server: ChatServer) -> None:
    live = evaluated(written(workspace, server, [bad.code for bad in SOFT]))
    check(live, server, SOFT, most=1)
    assert not live.run.engine.notices.texts, "the host lived on"


STUCK = Bad(
    "every interrupt swallowed",
    "open('holds-0', 'w').close()\n"
    "while True:\n    try:\n        spins = 0\n        while True: spins += 1\n    except BaseException:\n        pass",
    f"{UNINTERRUPTIBLE} (agent_workflow_timeout_s)",
    "spins += 1",
    "timeout",
)


def test_an_agent_that_cannot_be_interrupted_costs_others_at_most_one_more_rollout(
    workspace: Workspace, server: ChatServer, clock: HostClock
) -> None:
    config = written(workspace, server, [STUCK.code], agent_workflow_timeout_s=600, batch_size=4)
    with running(config, environ=clock.environ) as live:
        holds(live, workspace)

        def is_over() -> bool:
            clock.advance(600)
            return RunId(0, 0) in dict(live.told)

        live.wait_for(is_over, "for the end of row 0, which swallows interrupts")
        live.wait()
    check(live, server, [STUCK], most=2)


HARMLESS = {
    "10 MB in one print": "print('x' * 10_000_000)",
    "bytes": "sys.stdout.buffer.write(b'bytes')",
    "raw output": "os.write(1, b'{}\\n' * 1000)\nos.write(2, b'{}\\n' * 1000)",
    "stdin": "assert sys.stdin.read() == ''",
    "subprocesses": "subprocess.run(['sh', '-c', 'echo out; echo err >&2; cat'], check=True)",
    "a forgotten task that leaves": "async def leave():\n    sys.exit(3)\nasyncio.create_task(leave())",
    "a process that stays": "subprocess.Popen(['sleep', '1000'])",
    "a thread that stays": "import threading\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
    "a fork that sleeps": "if not os.fork():\n    time.sleep(1000)",
    "a fork that returns": "os.fork()",
    "a chat from a thread": "loop = asyncio.get_running_loop()\n"
    "ask = lambda: asyncio.run_coroutine_threadsafe(ctx.chat(ctx.prompt), loop).result()\n"
    "return [*ctx.prompt, (await asyncio.to_thread(ask)).message]",
    "a conversation of 20 MB": "await ctx.chat(ctx.prompt)\n"
    "return [{'role': 'user', 'content': 'x' * 20_000_000}, {'role': 'assistant', 'content': '42'}]",
}


def test_side_effects_of_agents_harm_no_run(workspace: Workspace, server: ChatServer) -> None:
    codes = [f"{code}\nawait ctx.chat(ctx.prompt)" for code in HARMLESS.values()]
    live = evaluated(written(workspace, server, codes))
    failed = [name for name, kind in zip(HARMLESS, live.kinds(), strict=False) if kind != "passed"]
    assert failed == []
    assert live.kinds() == ["passed"] * (len(HARMLESS) + SIBLINGS)
    assert asked_rows(server) == dict.fromkeys(range(len(HARMLESS) + SIBLINGS), 1)
    assert not live.run.engine.notices.texts


def test_a_run_cancelled_before_it_runs_returns_its_slot(workspace: Workspace) -> None:
    """Row 0 cancels all tasks, also that of row 1, which just began; rows 2 and 3 end only if both are in flight."""
    workspace.agent(
        """
        BOTH = asyncio.Barrier(2)

        async def rollout(ctx):
            if ctx.row_index == 0:
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
            elif ctx.row_index > 1:
                await BOTH.wait()
            return [{"role": "assistant", "content": "42"}]
        """
    )
    live = evaluated(workspace.config(None, evaluation={"agent_workflow_timeout_s": 60, "batch_size": 2}))
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert (live.record(1).boundary, live.record(1).error) == ("agent", CANCELLED)


def test_a_leftover_task_that_holds_the_loop_is_ended(workspace: Workspace, clock: HostClock) -> None:
    workspace.agent(
        """
        async def spin():
            await asyncio.sleep(0)
            open("holds-1", "w").close()
            while True: pass
        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
            if ctx.row_index == 1:
                asyncio.create_task(spin())
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    config = workspace.config(None, evaluation={"agent_workflow_timeout_s": 60, "batch_size": 1})
    with running(config, environ=clock.environ) as live:
        holds(live, workspace)
        clock.advance(60)
        live.wait()
    assert live.kinds() == ["passed"] * 4


def test_a_large_log_keeps_its_head_and_tail(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    bound_log(path)
    assert not path.exists()
    path.write_bytes(b"x" * MOST_LOG_BYTES)
    bound_log(path)
    assert path.stat().st_size == MOST_LOG_BYTES, "it is not too large"
    path.unlink()
    whole = b""
    for number in range(3):
        more = b"".join(b"%d %07d\n" % (number, line) for line in range(1_000_000))
        whole += more
        with path.open("ab") as file:
            file.write(more[:1_000_000])
            bound_log(path)
            file.write(more[1_000_000:])
        bound_log(path)
        content = path.read_bytes()
        assert content == whole[:HEAD_BYTES] + b"\n[... bytes left out ...]\n" + whole[-TAIL_BYTES:]


def test_a_fatal_error_after_the_log_was_cut_is_still_reported(
    workspace: Workspace, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quarantine began to write far behind the end of the shortened log."""
    monkeypatch.setattr(host_connection, "MOST_LOG_BYTES", 100_000)
    monkeypatch.setattr(host_connection, "HEAD_BYTES", 1_000)
    monkeypatch.setattr(host_connection, "TAIL_BYTES", 9_000)
    workspace.agent(
        """
        import ctypes

        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
            if os.fstat(2).st_size < 80_000:
                os.write(2, b"x" * 90_000)
            else:
                os.write(2, b"x" * 20_000)
                until = time.monotonic() + 60
                while os.fstat(2).st_size > 80_000 and time.monotonic() < until:
                    await asyncio.sleep(0.01)
            ctypes.string_at(0)
        """
    )
    live = evaluated(workspace.config(server, data={"rows": "0"}))
    assert live.record(0).boundary == "agent"
    assert "Fatal Python error: Segmentation fault" in live.outcome(0).text
    assert "bytes left out ...]" in live.run_files()["host.log"]


TELLS = """
import gc
WHILE_LOADING, IS_ENABLED = gc.get_threshold()[0], gc.isenabled()
{}

async def rollout(ctx):
    said = f"{{WHILE_LOADING}} {{gc.get_threshold()[0]}} {{IS_ENABLED}} {{gc.isenabled()}}"
    return [*ctx.prompt, {{"role": "assistant", "content": said}}]
"""


@pytest.mark.parametrize(("set_by_user", "later"), [("", COLLECT_AFTER), ("gc.set_threshold(1234)", 1234)])
def test_garbage_is_collected_rarely_unless_user_code_sets_a_threshold(
    workspace: Workspace, set_by_user: str, later: int
) -> None:
    workspace.agent(TELLS.format(set_by_user))
    live = evaluated(workspace.config(None))
    said = {event["messages"][-1]["content"] for event in live.events("rollout")}
    assert said == {f"{COLLECT_AFTER_LOADING} {later} True True"}


def test_a_session_says_when_it_began_and_how_it_ended(workspace: Workspace) -> None:
    live = evaluated(workspace.config(None))

    kinds = [event["ev"] for event in replay(live.run.directory.journal)]
    assert (kinds[:3], kinds[-1]) == (["began", "loaded", "rows"], "ended")
    [began], [ended] = live.events("began"), live.events("ended")
    assert (began["pid"], began["resumed"], began["at"] <= ended["at"]) == (os.getpid(), False, True)
    assert (ended["status"], ended["reason"]) == ("finished", None)


REWARDS = """
import os, signal
from helper import right

def sync(solution_str):
    import later
    return right * later.right

async def on_the_loop(solution_str):
    return right
"""
AGENT = """
from prompts import question

async def rollout(ctx):
    return (await ctx.chat([{"role": "user", "content": question}])) and None
"""
FILES = {
    "rewards.py": REWARDS,
    "helper.py": "right = 1.0\n",
    "later.py": "right = 1.0\n",
    "agent.py": AGENT,
    "prompts.py": 'question = "row 0"\n',
}


class Saving:
    """Starts hosts; before the first of a role, or one that replaces another, it writes a file."""

    def __init__(self, file: Path, text: str, role: str, nth: int = 1) -> None:
        self.file, self.text, self.role, self.nth = file, text, role, nth

    def __call__(self, name: str, *args: Any, **options: Any) -> HostConnection:
        if name == self.role:
            self.nth -= 1
            if self.nth == 0:
                self.file.write_text(self.text, encoding="utf-8")
        return HostConnection(name, *args, **options)


def changing(workspace: Workspace, **tables: Any) -> dict[str, Any]:
    for name, text in FILES.items():
        workspace.write(name, text)
    scoring = {"eval_fns": ["rewards:sync", "rewards:on_the_loop"]}
    return {"scoring": scoring, "agent": {"agent": "agent:rollout"}, **tables}


def check_stopped(live: Live, file: str) -> None:
    """Check that the eval was stopped and names the file, and that nothing was scored by other code."""
    assert live.stop.reason == "systemic"
    assert live.stop.text.startswith(f"{file} has changed since the eval loaded it; start the eval again")
    assert all(score == 1.0 for record in live.results.records for score in record.scores.values())
    assert len(live.events("loaded")) == 1


@pytest.mark.parametrize(("file", "role"), [("agent.py", "host"), ("prompts.py", "quarantine"), ("rewards.py", "host")])
def test_a_host_that_is_replaced_by_other_code_rolls_out_nothing(workspace: Workspace, file: str, role: str) -> None:
    tables = changing(workspace, evaluation={"batch_size": 2})
    text = FILES[file].replace("row 0", "row 9") + "# saved\n"
    saving = Saving(workspace.root / file, text, role, 2 if role == "host" else 1)
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, **tables), spawn=saving) as live:
            server.wait_for(lambda server: server.in_flight == 2)
            live.wait_for(lambda: live.run.engine.progress.in_flight == 2)
            server.release()
            os.kill(live.host("host").pid, signal.SIGKILL)
            live.wait()
        prompts = [message["content"] for body in server.bodies for message in body["messages"]]
    check_stopped(live, file)
    assert set(prompts) == {"row 0"}


@pytest.mark.parametrize("file", ["rewards.py", "helper.py", "later.py", "helper/__init__.py", "later/__init__.py"])
def test_a_scorer_with_other_code_scores_nothing(workspace: Workspace, file: str) -> None:
    """Nor with a new file that stands before another."""
    tables = changing(workspace)
    (workspace.root / file).parent.mkdir(exist_ok=True)
    text = FILES.get(file, "right = 1.0\n").replace("1.0", "0.0") + "# saved\n"
    live = evaluated(workspace.config(None, **tables), spawn=Saving(workspace.root / file, text, "scorer"))
    check_stopped(live, file)
    assert not any("rewards:sync" in record.scores for record in live.results.records)
    assert set(live.kinds()) <= {"error", "skipped"}


WRITES = """
async def rollout(ctx):
    os.write(2, b"written outside of any run")
    said = " ".join([str(os.getppid()), os.getcwd(), os.environ.get("COLOUR", "none"), os.environ.get("GONE", "none")])
    return [*ctx.prompt, {"role": "assistant", "content": f"{os.getpid()} {said}"}]
"""


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrestartedHost]:
    """Yield a host that was started with a variable that is gone when the eval begins."""
    monkeypatch.setenv("GONE", "still there")
    warm = PrestartedHost()
    monkeypatch.delenv("GONE")
    yield warm
    warm.close()


def pid_of(warm: PrestartedHost) -> int:
    assert warm._host is not None
    return warm._host.pid


def test_a_prestarted_host_becomes_the_first_host_of_the_first_eval(workspace: Workspace, warm: PrestartedHost) -> None:
    workspace.agent(WRITES)
    pid = pid_of(warm)
    config = workspace.config(None, env={"COLOUR": "green"})
    live = evaluated(config, spawn=partial(HostConnection, prestarted=warm))
    said = {event["messages"][-1]["content"] for event in live.events("rollout")}
    assert said == {f"{pid} {os.getpid()} {workspace.root} green none"}
    assert "written outside of any run" in (live.run.directory.host_log).read_text()


def test_a_prestarted_host_is_not_used_if_the_host_must_start_with_other_variables_and_is_ended(
    workspace: Workspace, warm: PrestartedHost
) -> None:
    workspace.agent(WRITES)
    pid = pid_of(warm)
    config = workspace.config(None, env={"PYTHONHASHSEED": "7"})
    live = evaluated(config, spawn=partial(HostConnection, prestarted=warm))
    assert not any(event["messages"][-1]["content"].startswith(f"{pid} ") for event in live.events("rollout"))
    assert Path(f"/proc/{pid}").exists()
    warm.close()
    warm.close()
    assert not Path(f"/proc/{pid}").exists()


def test_a_prestarted_host_that_died_is_not_used(workspace: Workspace, warm: PrestartedHost) -> None:
    assert warm._host is not None
    warm._host.kill()
    os.waitid(os.P_PID, warm._host.pid, os.WEXITED | os.WNOWAIT)
    live = evaluated(workspace.config(None), spawn=partial(HostConnection, prestarted=warm))
    assert [record.status for record in live.results.records] == ["finished"] * 4
