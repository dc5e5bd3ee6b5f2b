"""`--osmosis-inline`: an eval in pytest's own process, for prints and Ctrl-C; and pytest's debugger, over stdin.

`tests/endpoint` has agents with a client of their own in hosts.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, FAIL, Workspace, hosts_under, timeless, wait_until
from tests.servers import ChatServer, held, reply

INLINE = "--osmosis-inline"

UNRULY = """
import asyncio, sys, warnings

async def rollout(ctx):
    what = ctx.metadata.get("agent")
    warnings.warn("old", DeprecationWarning)
    if what == "raises":
        raise ZeroDivisionError("the agent broke")
    if what == "exits":
        sys.exit(3)
    if what == "exits in a task":
        asyncio.get_running_loop().create_task(exits())
        await asyncio.sleep(0.01)
    if what == "says nothing":
        return None
    replies = await asyncio.gather(*(ctx.chat(ctx.prompt) for _ in range(2)))
    return [*ctx.prompt, replies[0].message]

async def exits():
    sys.exit(4)
"""
REWARDS = """
import asyncio

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    asyncio.run(asyncio.sleep(0))
    what = extra_info.get("reward")
    if what == "raises":
        raise ZeroDivisionError("the reward function broke")
    return None if what == "None" else float(ground_truth in solution_str)

async def slow(messages, **kwargs):
    await asyncio.sleep(0)
    return len(messages) / 4
"""
ROWS: list[dict[str, Any]] = [
    {},
    {"ground_truth": "wrong"},
    {"agent": "raises"},
    {"agent": "exits"},
    {"agent": "exits in a task"},
    {"agent": "says nothing"},
    {"reward": "raises"},
    {"reward": "None"},
]


@pytest.mark.journey
def test_outcomes_scores_and_journal_equal_those_of_a_host(workspace: Workspace) -> None:
    workspace.write("rewards.py", REWARDS)
    workspace.write("agent.py", UNRULY)
    workspace.eval(
        rows=ROWS,
        agent={"agent": "agent:rollout"},
        scoring={"eval_fns": ["rewards:score", "rewards:slow"], "decide": "rewards:score"},
        evaluation={"n": 2, "batch_size": 4},
        limits={"max_errors": 100},
        sampling={"seed": 3},
    )

    hosted = workspace.run(CONFIG)
    expected = workspace.results()
    done = workspace.run(CONFIG, INLINE, "-Werror")

    assert timeless(workspace.results()["rows"]) == timeless(expected["rows"])
    assert done.ret == hosted.ret == 1
    assert done.parseoutcomes().keys() - {"warning", "warnings"} == hosted.parseoutcomes().keys()
    assert [event["row"] for event in workspace.events("start")] == [row for row in range(8) for _ in range(2)]
    assert workspace.events("loaded")[0]["scorers"] == ["rewards:score", "rewards:slow"]
    done.stdout.fnmatch_lines(["*1 in flight, inline: in pytest's own process, without deadlines"])


LOOKING = """
import os, sys

async def rollout(ctx):
    import helper
    helper.seen += 1
    reply = await ctx.chat(ctx.prompt)
    print("agent:", os.getcwd() == os.path.dirname(helper.__file__), os.environ["COLOUR"], helper.seen)
    return [*ctx.prompt, reply.message]
"""
LOOKED = """
import os, sys

def test_the_process_is_as_it_was():
    assert "COLOUR" not in os.environ
    assert os.path.basename(os.getcwd()) != "space"
    assert not [path for path in sys.path if path.endswith("space")]
    assert "helper" not in sys.modules and "agent" not in sys.modules
"""


def test_output_belongs_to_the_item_and_process_state_to_the_user_code(workspace: Workspace) -> None:
    for folder, colour in (("space", "green"), ("other/space", "blue")):
        workspace.write(f"{folder}/helper.py", "seen = 0\n")
        workspace.write(f"{folder}/agent.py", LOOKING)
        workspace.eval(rows=[FAIL, FAIL], folder=folder, agent={"agent": "agent:rollout"}, env={"COLOUR": colour})
    workspace.write("test_looked.py", LOOKED)
    paths = ["space/configs/eval/x.toml", "other/space/configs/eval/x.toml"]

    done = workspace.run(INLINE, *paths, "test_looked.py", "-p", "no:randomly")

    lines = [line for line in done.outlines if line.startswith("agent:")]
    assert lines == ["agent: True green 1", "agent: True green 2", "agent: True blue 1", "agent: True blue 2"]
    done.stdout.fnmatch_lines(["*Captured stdout setup*", "agent: True green 1"])
    done.assert_outcomes(failed=4, passed=1)


def test_ctrl_c_interrupts_the_rollout_and_keeps_what_is_done(workspace: Workspace) -> None:
    with ChatServer(reply("42"), held(reply("42"))) as server:
        workspace.eval(rows=4, evaluation={"batch_size": 3}, model={"base_url": server.base_url})
        session = workspace.start(CONFIG, INLINE, "--osmosis-no-probe")
        wait_until(lambda: len(server.requests) == 2, "the second request")
        session.interrupt()
        assert session.wait() == 2, session.output
        assert server.max_in_flight == 1
    results = workspace.results()
    assert (results["status"], results["summary"]["total_runs"]) == ("stopped", 1)
    assert [run["reason"] for run in results["pending"]] == ["interrupted"] * 3
    assert "KeyboardInterrupt" in session.output
    assert "INTERNALERROR" not in session.output
    assert "never awaited" not in session.output


def test_maxfail_and_a_failed_probe_stop_an_inline_eval(workspace: Workspace) -> None:
    workspace.eval(rows=[FAIL, {}, {}])

    workspace.run(CONFIG, INLINE, "-x", exits=1)
    assert workspace.results()["summary"]["total_runs"] == 1

    workspace.eval("y", model={"base_url": "http://127.0.0.1:9/v1", "max_retries": 0})
    workspace.run("--osmosis-config=configs/eval/y.toml", INLINE, exits=9).assert_outcomes(skipped=3, errors=1)


def test_inline_is_refused_with_workers(workspace: Workspace) -> None:
    workspace.eval()

    for flag in (INLINE, "--trace"):
        done = workspace.run(CONFIG, flag, "-n2", exits=4)
        done.stderr.fnmatch_lines([f"ERROR: {flag}: user code runs in pytest's own process, *; add -n0"])


ENVIRONED = """
import os

def score(solution_str, ground_truth, **kwargs):
    assert os.environ.get("OPENAI_API_KEY") in (None, "of-the-user"), "reward functions have the user's environment"
    return float(solution_str == ground_truth)
"""
AGENTS = """
import openai

async def on_the_loop(ctx):
    with openai.OpenAI(base_url=ctx.base_url, api_key=ctx.api_key) as client:
        client.chat.completions.create(model=ctx.model, messages=ctx.prompt)

def by_environment(ctx):
    openai.OpenAI().chat.completions.create(model="any", messages=ctx.prompt)
"""


@pytest.mark.parametrize(("agent", "endpoint"), [("on_the_loop", "url"), ("by_environment", "env")])
def test_requests_of_own_clients_count(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, agent: str, endpoint: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-user")
    workspace.write("rewards.py", ENVIRONED)
    workspace.write("agents.py", AGENTS)
    with ChatServer(reply("15")) as server:
        workspace.eval(
            rows=[{"ground_truth": "15"}] * 2,
            model={"base_url": server.base_url},
            agent={"agent": f"agents:{agent}", "endpoint": endpoint},
            evaluation={"batch_size": 2},
        )
        result = workspace.run(CONFIG, "--osmosis-inline", "-Werror")

    result.assert_outcomes(passed=2)
    assert workspace.results()["summary"]["total_tokens"] == 20
    assert len(server.requests) == 3, "the probe and two runs"


AGENT = """
async def rollout(ctx):
    asked = len(ctx.prompt)
    {first}
    reply = await ctx.chat(ctx.prompt)
    answer = reply.message["content"]
    return [*ctx.prompt, reply.message]
"""
HELPED = """
import helper

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    found = helper.parse(solution_str)
    if extra_info.get("reward") == "raises":
        raise ZeroDivisionError("the reward function broke")
    result = 0.25
    return result

async def judge(messages, ground_truth, **kwargs):
    n = len(messages)
    return n / 8
"""
HELPER = "def parse(text):\n    return text.upper()\n"
GRADER = """
from pytest_osmosis import AgentWorkflow, Grader

class Workflow(AgentWorkflow):
    async def run(self, ctx):
        await ctx.chat(ctx.prompt)

class Strict(Grader):
    async def grade(self, ctx):
        wanted = ctx.label
        ctx.set_reward(0.0)
"""


def say(*expressions: str, then: str = "c") -> bytes:
    """Return debugger commands that print these expressions and continue."""
    return "".join(f"p 'say', {expression}\n" for expression in expressions).encode() + f"{then}\n".encode()


def printed(result: pytest.RunResult) -> list[str]:
    return [line[line.index("('say'") :] for line in result.outlines if "('say'" in line]


# -- inline -----------------------------------------------------------------------------------------------


def test_trace_stops_at_the_entry_of_agent_and_rewards(workspace: Workspace) -> None:
    workspace.write("helper.py", HELPER)
    workspace.write("agent.py", AGENT.format(first="pass"))
    workspace.write("rewards.py", HELPED)
    scoring = {"eval_fns": ["rewards:score", "rewards:judge"], "thresholds": {"rewards:judge": 0, "rewards:score": 0}}
    workspace.eval(rows=2, agent={"agent": "agent:rollout"}, scoring=scoring)
    one = say("'agent', ctx.row_index", then="n\nc") + say("'judge', len(messages)") + say("'score', ground_truth")
    done = workspace.run_process(CONFIG, "--trace", stdin=one * 2)
    assert printed(done) == [
        *("('say', 'agent', 0)", "('say', 'judge', 2)", "('say', 'score', '0')"),
        *("('say', 'agent', 1)", "('say', 'judge', 2)", "('say', 'score', '2')"),
    ]
    done.assert_outcomes(passed=2)


def test_pdb_opens_where_an_agent_raised_inline(workspace: Workspace) -> None:
    workspace.write("agent.py", AGENT.format(first="asked / 0"))
    workspace.eval(rows=2, agent={"agent": "agent:rollout"})

    done = workspace.run_process(CONFIG, INLINE, "--pdb", stdin=say("asked", "ctx.row_index") + say("ctx.row_index"))

    assert printed(done) == ["('say', 1)", "('say', 0)", "('say', 1)"]
    done.stdout.fnmatch_lines(["*agent.py(4)rollout()", "*asked / 0"])
    done.assert_outcomes(errors=2)


def test_quitting_the_debugger_ends_the_session_and_fails_no_run(workspace: Workspace) -> None:
    workspace.write("agent.py", AGENT.format(first="breakpoint()"))
    workspace.eval(rows=3, agent={"agent": "agent:rollout"})

    done = workspace.run_process(CONFIG, INLINE, stdin=say("ctx.row_index") + b"q\n")

    assert (done.ret, printed(done)) == (2, ["('say', 0)"])
    done.stdout.fnmatch_lines(["*Exit: Quitting debugger*"])
    results = workspace.results()
    assert results["summary"]["total_runs"] == 1
    assert [run["reason"] for run in results["pending"]] == ["interrupted"] * 2
    assert results["summary"]["boundaries"] == {}


# -- --pdb on what engine hosts recorded --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("functions", "row", "expression", "value", "place"),
    [
        pytest.param(["rewards:score"], {}, "found, result", "'THE ANSWER IS 0.\\n#### 0', 0.25", "score()", id="low"),
        pytest.param(
            ["rewards:score"], {"reward": "raises"}, "found", "'THE ANSWER IS 0.\\n#### 0'", "score()", id="raises"
        ),
        pytest.param(["rewards:judge"], {}, "n", "2", "judge()", id="async"),
    ],
)
def test_pdb_opens_in_the_frame_of_a_reward_that_failed(
    workspace: Workspace, functions: list[str], row: dict[str, str], expression: str, value: str, place: str
) -> None:
    workspace.write("helper.py", HELPER)
    workspace.write("rewards.py", HELPED)
    with ChatServer(reply("The answer is 0.\n#### 0")) as server:
        workspace.eval(rows=[row], scoring={"eval_fns": functions}, model={"base_url": server.base_url})

        done = workspace.run_process(
            CONFIG, "--osmosis-no-probe", "--pdb", stdin=say(expression, "__import__('helper').parse('a')")
        )

        assert len(server.requests) == 1
    assert printed(done) == [f"('say', {value})", "('say', 'A')"]
    done.stdout.fnmatch_lines(
        [f"osmosis: calling {functions[0]} again *recorded conversation of row0-run0", f"*{place}*"]
    )
    assert not hosts_under(workspace.root)


@pytest.mark.journey
def test_pdb_opens_where_a_grader_returned(workspace: Workspace) -> None:
    workspace.write("rollouts/x/main.py", GRADER)
    experiment = {"rollout": "x", "entrypoint": "main.py"}
    workspace.eval(rows=1, experiment=experiment, scoring={"eval_fns": None})

    done = workspace.run_process(CONFIG, "--pdb", stdin=say("wanted, ctx.sample.reward"))

    assert printed(done) == ["('say', '0', 0.0)"]
    done.assert_outcomes(failed=1)


def test_pdb_does_not_repeat_a_rollout_that_failed(workspace: Workspace) -> None:
    workspace.write("agent.py", AGENT.format(first="asked / 0"))
    workspace.eval(rows=1, agent={"agent": "agent:rollout"})

    done = workspace.run_process(CONFIG, "--pdb", stdin=say("record.error, messages[0]['role'], ground_truth"))

    assert printed(done) == ["('say', 'ZeroDivisionError: division by zero', 'user', '0')"]
    done.stdout.fnmatch_lines(["osmosis: --pdb does not repeat a rollout; `--osmosis-inline --pdb` *"])
    assert len(workspace.events("start")) == 1


def test_a_reward_that_ended_its_process_is_not_called_again(workspace: Workspace) -> None:
    workspace.write("rewards.py", "import os\n\ndef score(solution_str, **kwargs):\n    os._exit(3)\n")
    workspace.eval(rows=1)

    done = workspace.run_process(CONFIG, "--pdb", stdin=say("str(record.run)"))

    assert done.ret == 9
    done.stdout.fnmatch_lines(["osmosis: rewards:score is not called again in pytest's process: it ended its process*"])
    assert printed(done) == ["('say', 'row0-run0')"]


AT_A_PROMPT = """
import os, time

def test_python():
    while not os.path.exists("go"):
        time.sleep(0.01)
    breakpoint()
"""


def test_no_run_starts_while_a_prompt_is_open(workspace: Workspace) -> None:
    workspace.write("test_python.py", AT_A_PROMPT)
    with ChatServer(held(reply("42"))) as server:
        workspace.eval(rows=60, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
        session = workspace.start("test_python.py", CONFIG, "--osmosis-no-probe")
        wait_until(lambda: server.in_flight == 2, "two rollouts in flight")
        workspace.write("go", "")
        session.type("open('prompted', 'w').close()\n")
        wait_until((workspace.root / "prompted").exists, "the prompt")

        server.release()
        wait_until(lambda: len(workspace.events("rollout")) >= 2, "what was in flight")
        wait_until(lambda: stands_still(server), "quiet")
        asked_while_open = len(server.requests)
        session.type("c\n")

        assert session.wait() == 0, session.output
        assert len(server.requests) == 60
    assert asked_while_open < 10  # what was on its way when the prompt opened; unpaused, all 60 take half a second
    assert "61 passed" in session.output


def stands_still(server: ChatServer) -> bool:
    before = len(server.requests)
    time.sleep(0.5)
    return len(server.requests) == before
