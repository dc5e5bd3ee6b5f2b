"""Recorded and scripted evals: what is replayed, what breaks a replay and what says that it is one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, read_json, timeless, wait_until
from tests.servers import ChatServer, never, reply

IN_THE_WAY = """
import pathlib

def pytest_runtest_logreport(report):
    pathlib.Path("cassettes").write_text("in the way")
"""


def use(workspace: Workspace, name: str = "x") -> dict[str, Any]:
    found: dict[str, Any] = workspace.results(name)["provenance"]["cassette"]
    return found


@pytest.mark.slow
def test_judges_are_replayed_for_rescoring(workspace: Workspace) -> None:
    workspace.eval(
        rows=3,
        judge={"model_path": "demo/judge", "votes": 2},
        scoring={"eval_fns": ["rewards:score"], "rubric": "Is it right?"},
    )
    workspace.run(CONFIG, "--osmosis-record", exits=0)
    assert use(workspace)["requests"] == 3 * (1 + 2)
    recorded = counted(workspace)
    workspace.run("--osmosis-from=latest", "--osmosis-rescore", "--osmosis-replay", exits=0)
    assert counted(workspace) == recorded
    assert use(workspace)["replayed"] == 3 * 2


@pytest.mark.addon
@pytest.mark.slow
def test_tests_over_rollouts_are_replayed(workspace: Workspace) -> None:
    workspace.eval(rows=3)
    test = "def test_answer(rollout):\n    assert rollout.ground_truth in rollout.solution_str\n"
    workspace.write("test_x.py", f"import pytest\n\n@pytest.mark.osmosis_eval('configs/eval/x.toml')\n{test}")
    workspace.run("test_x.py", "--osmosis-source=model", "--osmosis-record").assert_outcomes(passed=3)

    replay = workspace.run("test_x.py", "--osmosis-source=model", "--osmosis-replay")

    replay.assert_outcomes(passed=3)
    replay.stdout.fnmatch_lines(["  replays cassettes/x.jsonl: no model is asked"])
    assert use(workspace, "x-tests")["replayed"] == 3


def test_a_cassette_that_cannot_be_written_fails_the_session(workspace: Workspace) -> None:
    workspace.eval(rows=2)
    workspace.write("conftest.py", IN_THE_WAY)

    result = workspace.run(CONFIG, "--osmosis-record", exits=1)

    log = f".osmosis/runs/{workspace.run_dirs()[-1].name}/exchanges.jsonl"
    result.stdout.fnmatch_lines([f"*the cassette was not written: cassettes/x.jsonl: *; its exchanges are in {log}*"])
    assert (workspace.root / log).stat().st_mode & 0o777 == 0o600


SWALLOWS = """
async def rollout(ctx):
    messages = [*ctx.prompt, (await ctx.chat(ctx.prompt)).message, {"role": "user", "content": "Go on?"}]
    try:
        await ctx.chat(messages)
    except Exception:
        pass
    return [*messages, {"role": "assistant", "content": "42"}]
"""
RAISES = SWALLOWS.replace("        pass", "        messages = []").replace(
    "    return ", "    messages[0]\n    return "
)


@pytest.mark.slow
@pytest.mark.parametrize("agent", [SWALLOWS, RAISES])
def test_a_request_that_was_not_recorded_breaks_the_run_whatever_the_agent_does(
    workspace: Workspace, agent: str
) -> None:
    workspace.write("agents.py", agent)
    workspace.eval(rows=2, agent={"agent": "agents:rollout"}, gate={"pass_rate": ">= 0.1"})
    assert workspace.run(CONFIG, "--osmosis-record").ret == 0
    workspace.write("agents.py", agent.replace("Go on?", "Go on!"))

    result = workspace.run(CONFIG, "--osmosis-replay", exits=1)

    assert workspace.results()["summary"]["boundaries"] == {"provider": 2}
    result.stdout.fnmatch_lines(["*ERROR at setup of x[[]replay[]]*", "2 of 2 runs asked what was not recorded *"])
    result.stdout.fnmatch_lines(['-*"content": "Go on[?]"*', '+*"content": "Go on!"*'], consecutive=True)


LENIENT = """
from pytest_osmosis import evaluate_rubric

def score(solution_str, ground_truth, **kwargs):
    judge = {"provider": "openai", "model": "arithmetic", "api_key": "none", "base_url": "BASE_URL"}
    try:
        return evaluate_rubric("Is it right?", solution_str, model_info=judge)
    except Exception:
        return 1.0
"""


@pytest.mark.slow
def test_a_judge_that_was_not_recorded_breaks_the_run_whatever_the_function_does(workspace: Workspace) -> None:
    workspace.eval(rows=2, gate={"pass_rate": ">= 0.1"})
    with ChatServer(reply(json.dumps({"score": 1.0, "explanation": "right"}))) as judge:
        lenient = LENIENT.replace("BASE_URL", judge.base_url)
        workspace.write("rewards.py", lenient)
        workspace.run(CONFIG, "--osmosis-record")
    assert use(workspace)["requests"] == 4
    workspace.write("rewards.py", lenient.replace("Is it right?", "Is it good?"))
    result = workspace.run(CONFIG, "--osmosis-replay", exits=1)
    assert workspace.results()["summary"]["boundaries"] == {"provider": 2}
    result.stdout.fnmatch_lines(["*ERROR at setup of x[[]replay[]]*", "2 of 2 runs asked what was not recorded *"])
    result.stdout.fnmatch_lines(["-Is it right[?]", "+Is it good[?]"], consecutive=True)


@pytest.mark.slow
def test_a_baseline_is_measured(workspace: Workspace) -> None:
    workspace.eval(rows=2, baseline={"results": "base.json"})
    words = (CONFIG, "--osmosis-record=new", "--osmosis-update-baseline")
    assert workspace.run(*words).ret == 0
    assert workspace.run(CONFIG, "--osmosis-replay").ret == 0

    again = workspace.run(*words, exits=1)

    again.stdout.fnmatch_lines(["the baseline is not updated: 2 of 2 requests came from the cassette"])
    replayed = workspace.run_dirs()[1] / "results.json"
    refused = workspace.run(CONFIG, f"--osmosis-set=baseline.results={replayed}", exits=4)
    refused.stderr.fnmatch_lines(["ERROR: *: was replayed from a cassette, not measured; *"])


TURNS = """
async def rollout(ctx):
    messages = list(ctx.prompt)
    for _ in range(3):
        messages += [(await ctx.chat(messages)).message, {"role": "user", "content": "Go on."}]
    return messages[:-1]
"""


@pytest.mark.slow
def test_what_a_killed_session_recorded_is_not_asked_again(workspace: Workspace) -> None:
    workspace.write("agents.py", TURNS)
    words = (CONFIG, "--osmosis-record", "--osmosis-no-probe")
    with ChatServer(reply("1"), reply("2"), never(), reply("3")) as server:
        workspace.eval(rows=1, agent={"agent": "agents:rollout"}, model={"base_url": server.base_url})
        session = workspace.start(*words)
        wait_until(lambda: len(server.requests) == 3, "three requests")
        log = workspace.run_dirs()[-1] / "exchanges.jsonl"
        wait_until(lambda: log.exists() and '"2"' in log.read_text(encoding="utf-8"), "an answer that a host has")
        session.kill()
        assert workspace.run(*words, "--osmosis-resume").ret == 0
        assert len(server.requests) == 4, "only the request that was in flight is repeated"
    assert workspace.run(CONFIG, "--osmosis-replay").ret == 0


def test_the_config_records_unless_the_command_says_otherwise(workspace: Workspace) -> None:
    workspace.eval(cassette={"record": "new", "path": "mine/y.jsonl"})

    def lines(*words: str) -> list[str]:
        return [line for line in workspace.run(CONFIG, *words, "--co").outlines if ".jsonl: " in line]

    assert lines() == ["  records into mine/y.jsonl: only what is missing is asked for"]
    assert lines("--osmosis-replay") == ["  replays mine/y.jsonl: no model is asked"]
    assert lines("--osmosis-record=off") == []
    # the value is optional
    assert lines("--osmosis-record") == ["  records into mine/y.jsonl: every answer replaces the recorded one"]


@pytest.mark.slow
def test_a_replay_needs_neither_key_nor_price_nor_secret(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as environment, ChatServer(reply("42")) as server:
        environment.setenv("KEY_OF_X", "sk-of-x-0123456789")
        environment.setenv("OF_THE_AGENT", "secret-of-the-agent-0123456789")
        model = {"base_url": server.base_url, "api_key_env": "KEY_OF_X"}
        workspace.eval(experiment={"model_path": "served"}, model=model, secrets={"required": ["OF_THE_AGENT"]})
        workspace.run(CONFIG, "--osmosis-record", exits=0)
    words = ("--osmosis-replay", "--osmosis-confirm-above=0.01", "--osmosis-set=limits.max_cost_usd=0.01")
    note = "OF_THE_AGENT: not set; that matters only if the agent or a reward function reads it"
    lines = ["  replays cassettes/x.jsonl: no model is asked", f"  note: {note}"]
    workspace.run(CONFIG, *words, exits=0).stdout.fnmatch_lines(lines)


SAID = "replayed from cassettes/x.jsonl: no model was asked"


@pytest.mark.slow
def test_replays_are_compared_with_replays_and_shown_as_such_everywhere(workspace: Workspace) -> None:
    workspace.eval(rows=2)
    reports = []
    for option in ("record", "replay", "replay"):
        workspace.run(CONFIG, f"--osmosis-{option}", "--junitxml=junit.xml", "--osmosis-markdown=page.md", exits=0)
        files = [(workspace.root / name).read_text(encoding="utf-8") for name in ("junit.xml", "page.md")]
        marks = ('<property name="osmosis.replayed" value="true"', SAID)
        reports.append([mark in file for mark, file in zip(marks, files, strict=True)])
    live, first, second = workspace.run_dirs()
    assert reports == [[False, False], [True, True], [True, True]]

    assert read_json(first / "results.json")["last_run"] is None, "the recording was a measurement"
    assert workspace.results()["last_run"]["run"] == first.name
    listed = json.loads(workspace.cli("runs", "--json").stdout.str())["runs"]
    replayed = {entry["name"]: entry["replayed"] for entry in listed}
    assert replayed == {live.name: False, first.name: True, second.name: True}
    shown = workspace.cli("show").outlines
    assert shown[0] == f"{second.name}: finished"
    assert SAID in shown
    assert read_json(second / "manifest.json")["cassette"]["mode"] == "replay"
    workspace.run("--osmosis-from=latest", exits=0).stdout.fnmatch_lines([SAID])
    assert use(workspace)["mode"] == "replay", "also when it is scored again"


ROWS: list[dict[str, Any]] = [
    {"ground_truth": "blue", "said": [{"tool": "find", "arguments": {"id": 0}}, "It is blue."]},
    {"ground_truth": "red", "said": "red"},
    {"ground_truth": "green", "said": {"tool": "find", "arguments": {"id": 2}}},
]
OWN_CLIENT = """
async def rollout(ctx):
    import openai

    client = openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    answer = await client.chat.completions.create(model=ctx.model, messages=ctx.prompt)
    return [*ctx.prompt, answer.choices[0].message.model_dump()]
"""


def with_script(workspace: Workspace, agent: str = "chat", **extra_body: Any) -> None:
    workspace.eval(
        rows=ROWS,
        experiment={"model_path": "demo/script", "dataset": "x"},
        evaluation={"n": 8, "batch_size": 8},
        agent={"agent": agent},
        scoring={"eval_fns": ["contains"]},
        sampling={"extra_body": {"column": "said", **extra_body}},
        gate={"pass_rate": ">= 0.3"},
    )


def counted(workspace: Workspace) -> Any:
    results = timeless(workspace.results())
    return [[(run["scores"], run["usage"], run["cost_usd"]) for run in row["runs"]] for row in results["rows"]]


@pytest.mark.slow
def test_a_replay_of_a_script_asks_nobody_and_says_the_same(workspace: Workspace) -> None:
    with_script(workspace, accuracy=0.7)
    workspace.run(CONFIG, "--osmosis-record", exits=0)
    recorded = counted(workspace)
    workspace.write("data/x.jsonl", (workspace.root / "data/x.jsonl").read_text().replace("It is", "That is"))
    workspace.run(CONFIG, "--osmosis-replay", exits=0)
    assert counted(workspace) == recorded


@pytest.mark.slow
def test_an_agent_with_a_client_of_its_own_gets_the_script(workspace: Workspace) -> None:
    workspace.write("agent.py", OWN_CLIENT)
    with_script(workspace, "agent:rollout")
    workspace.run(CONFIG, "-k", "run0")
    answers = [event["messages"][-1]["content"] for event in workspace.events("rollout")]
    assert set(answers) == {"It is blue.", "red", '{"tool": "find", "arguments": {"id": 2}}'}


def test_a_row_without_an_answer_is_an_error_of_the_dataset(workspace: Workspace) -> None:
    with_script(workspace)
    workspace.write("data/x.jsonl", (workspace.root / "data/x.jsonl").read_text().replace('"red"}', '" "}'))
    result = workspace.run(CONFIG, exits=4)
    text = 'row 1: demo/script answers from the column "said", which is empty here'
    assert f"ERROR: data/x.jsonl:2: {text}" in result.errlines
