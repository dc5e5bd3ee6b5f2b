"""Tasksets of verifiers 0.4 as evals. tests/verifiers compares them with its own `vf-eval`."""

from __future__ import annotations

import json

import pytest

from tests.environments.tasksets import TASKSET, write
from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace, read_json, wait_until
from tests.servers import ChatServer, held, reply

COMMAND = ("--osmosis-env=double-it", "--osmosis-model=demo/arithmetic", "--osmosis-n=2")
AT_OPENAI = ("--osmosis-env=double-it", "--osmosis-model=openai/some", "--osmosis-n=1")


def config(workspace: Workspace, environment: str) -> str:
    """Write the config of an eval of the taskset, and return the option that names it."""
    workspace.write(
        "configs/eval/x.toml",
        '[experiment]\nmodel_path = "demo/arithmetic"\n[environment]\nenv_id = "double-it"\n'
        f"{environment}\n[evaluation]\nn = 1\n[secrets]\nrequired = []\n",
    )
    return "--osmosis-config=configs/eval/x.toml"


@PLAIN_AND_XDIST
def test_tasks_are_rows_and_rewards_are_scores(workspace: Workspace) -> None:
    write(workspace)

    workspace.run(*COMMAND).assert_outcomes(passed=8)

    results = workspace.results("double-it")
    runs = [run for row in results["rows"] for run in row["runs"]]
    assert {run["scores"]["reward"] for run in runs} == {0.875}
    assert runs[0]["metrics"]["reward"].items() >= {("exact", 1.0), ("polite", 0.5)}
    assert all(run["usage"]["output_tokens"] for run in runs), "the tokens are those of the endpoint"
    manifest = read_json(workspace.run_dirs("double-it")[0] / "manifest.json")
    assert (manifest["environment"]["framework"], manifest["environment"]["n_rows"]) == ("0.4.0", 4)


def test_the_named_agent_scores_and_the_metrics_of_others_have_their_names(workspace: Workspace) -> None:
    write(workspace)

    option = config(workspace, 'scored_agent = "agent"\nselect = {limit = 1}\nenv_args = {judge = {}}')
    workspace.run(option).assert_outcomes(passed=1)

    [row] = workspace.results("x")["rows"]
    [run] = row["runs"]
    assert run["scores"] == {"reward": 0.875}
    assert set(run["metrics"]["reward"]) == {"exact", "polite", "length", *JUDGE}
    assert run["metrics"]["reward"]["judge.reward"] == 0.875


JUDGE = ("judge.exact", "judge.polite", "judge.length", "judge.reward")


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ('agent = {runtime = {type = "prime"}}', "agent.runtime: type must be subprocess or docker, got prime:*"),
        ('agent = {model = "other"}', "agent.model: without a client of its own, agent agent asks the eval's*"),
        ("agent = {client = {}}", "agent.client: its agent is scored, and so it asks the eval's model*"),
        ("env_args = {judge = {}}", "its agents are agent, judge; name the one whose reward is the score in*"),
        ('scored_agent = "agnet"', 'scored_agent: its agents are agent, got agnet, did you mean "agent"[?]'),
        ("", "its tasks never end; say how many to take*"),
        ("env_args = {solver = {}}", "*its taskset cannot be made: ValueError: extra keys: *solver*"),
    ],
)
def test_a_mistake_ends_the_session_before_anything_is_asked(workspace: Workspace, environment: str, text: str) -> None:
    write(workspace, TASKSET if environment else TASKSET.replace("INFINITE = False", "INFINITE = True"))
    refused = workspace.run(config(workspace, environment), exits=4)

    refused.stderr.fnmatch_lines([f"ERROR: *environment double-it*{text}"])


def test_errors_have_the_boundary_where_the_episode_broke(workspace: Workspace) -> None:
    write(workspace)
    option = config(workspace, 'taskset = {breaks = {0 = "sandbox", 1 = "reward"}, n = 3}')

    done = workspace.run(option)

    done.assert_outcomes(passed=1, errors=3)
    broke = ("row0-run0* - host: SandboxError: no box", "row1-run0* - reward: TaskError: division by zero")
    done.stdout.fnmatch_lines_random([*(f"ERROR *{line}" for line in broke), "its traceback"])
    assert [row["runs"][0].get("scores") for row in workspace.results("x")["rows"][:2]] == [{}, {}]


def test_a_stored_run_is_scored_by_what_its_episode_was_given(workspace: Workspace) -> None:
    write(workspace)
    workspace.run(*COMMAND, "--osmosis-run=one").assert_outcomes(passed=8)
    write(workspace, TASKSET.replace("0.75", "0.1"))

    workspace.run("--osmosis-from=one").assert_outcomes(passed=8)


def test_an_episode_is_replayed_without_a_server(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    write(workspace)
    command = (*AT_OPENAI, "--osmosis-limit=3")
    with ChatServer(reply("4")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        workspace.run(*command, "--osmosis-record").assert_outcomes(passed=1, failed=2)
    recorded = [row["runs"][0]["scores"] for row in workspace.results("double-it")["rows"]]

    workspace.run(*command, "--osmosis-replay").assert_outcomes(passed=1, failed=2)
    assert [row["runs"][0]["scores"] for row in workspace.results("double-it")["rows"]] == recorded


def test_a_killed_session_loses_and_repeats_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    write(workspace)
    command = (*AT_OPENAI, "--osmosis-limit=4", "--osmosis-no-probe")
    monkeypatch.setenv("OPENAI_API_KEY", "key")

    with ChatServer(reply("4"), reply("4"), reply("4"), held(reply("4")), reply("4")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        session = workspace.start(*command, "--osmosis-batch-size=1")
        wait_until(lambda: len(server.requests) == 4, "a request that is held")
        session.kill()
        workspace.run(*command, "--osmosis-resume")

    assert len(server.requests) == 5, "only the run in flight was repeated"
    rows = workspace.results("double-it")["rows"]
    assert [len(row["runs"]) for row in rows] == [1, 1, 1, 1]
    assert json.dumps(rows).count('"attempt": 2') == 1
