"""pytest's debugger in evals: prompts open in user code, and pause the eval. Commands come over stdin."""

from __future__ import annotations

import time

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, hosts_under, wait_until
from tests.servers import ChatServer, held, reply

INLINE = "--osmosis-inline"

AGENT = """
async def rollout(ctx):
    asked = len(ctx.prompt)
    {first}
    reply = await ctx.chat(ctx.prompt)
    answer = reply.message["content"]
    return [*ctx.prompt, reply.message]
"""
REWARDS = """
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
    """Return the output of the commands of `say`."""
    return [line[line.index("('say'") :] for line in result.outlines if "('say'" in line]


# -- inline -----------------------------------------------------------------------------------------------


def test_trace_stops_at_the_entry_of_agent_and_rewards(workspace: Workspace) -> None:
    workspace.write("helper.py", HELPER)
    workspace.write("agent.py", AGENT.format(first="pass"))
    workspace.write("rewards.py", REWARDS)
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
    workspace.write("rewards.py", REWARDS)
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


# -- nothing new while a prompt is open -----------------------------------------------------------------------

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
    """True if no request arrives in half a second."""
    before = len(server.requests)
    time.sleep(0.5)
    return len(server.requests) == before
