"""Tasksets of verifiers 0.4 as evals, and their files, also those that a new run of an environment takes over.

tests/verifiers compares both with those of `vf-eval`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.environments import page_environments
from tests.environments.tasksets import TASKSET, write
from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace, read_json, wait_until
from tests.servers import ChatServer, answered, held, reply

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


def test_each_host_scores_a_task_with_the_config_that_the_taskset_gave_it(workspace: Workspace) -> None:
    own = TASKSET.replace("(0.5, 0.25)", '(self.config["bonus"], 0.25)').replace(
        "else data)", 'else data, {"bonus": n})'
    )
    write(workspace, own)

    workspace.run(*COMMAND, "--osmosis-hosts=2").assert_outcomes(passed=8)

    rows = workspace.results("double-it")["rows"]
    assert [{run["scores"]["reward"] for run in row["runs"]} for row in rows] == [{0.75}, {1.0}, {1.25}, {1.5}]


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ('agent = {runtime = {type = "prime"}}', "agent.runtime: type must be subprocess or docker, got prime:*"),
        ('agent = {model = "other"}', "agent.model: without a client of its own, agent agent asks the eval's*"),
        ("agent = {client = {}}", "agent.client: its agent is scored, and so it asks the eval's model*"),
        ("env_args = {judge = {}}", "its agents are agent, judge; name the one whose reward is the score in*"),
        ('scored_agent = "agnet"', 'scored_agent: its agents are agent, got agnet, did you mean "agent"[?]'),
        ("", "its tasks never end; say how many to take*"),
        ("taskset = {n = 0}", ": load() has no rows"),
        ('taskset = {n = "x"}', " does not load: load() failed: TypeError: *"),
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
        wait_until(lambda: len(workspace.events("score", "double-it")) == 3, "the scores of those before")
        assert any((workspace.root / "cache/runtimes/subprocess").iterdir())
        session.kill()
        wait_until(lambda: not any((workspace.root / "cache/runtimes/subprocess").iterdir()), "no files left behind")
        workspace.run(*command, "--osmosis-resume")

    assert len(server.requests) == 5, "only the run in flight was repeated"
    rows = workspace.results("double-it")["rows"]
    assert [len(row["runs"]) for row in rows] == [1, 1, 1, 1]
    assert json.dumps(rows).count('"attempt": 2') == 1


def saved(workspace: Workspace, *command: str) -> Path:
    """Run an eval with its files, and return a copy of their folder, which no eval run here is known to have made."""
    workspace.run(*(command or COMMAND), "--osmosis-save-results")
    (metadata,) = (workspace.root / "outputs").rglob("metadata.json")
    copy = workspace.root / "files"
    shutil.copytree(metadata.parent, copy)
    (copy / "metadata.json").unlink()
    return copy


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]


def runs_of(workspace: Workspace) -> list[list[tuple[Any, Any]]]:
    rows = workspace.results("double-it")["rows"]
    return [[(run["scores"], run["metrics"]["reward"]) for run in row["runs"]] for row in rows]


def test_files_are_those_of_verifiers_0_4_and_a_new_run_takes_them_over(workspace: Workspace) -> None:
    write(workspace)
    folder, then = saved(workspace), runs_of(workspace)

    found = episodes(folder)
    assert [each["task"]["data"]["idx"] for each in found if each["ok"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found[0]["traces"][0]["rewards"]["exact"] == {"score": 1.0, "weight": 0.75}
    assert "client" not in found[0]["traces"][0]["agent"]["config"]
    settings = read_json(folder / "configs/resolved/eval.json")
    env = settings.pop("env")
    assert (env["taskset"]["id"], env["agent"]["runtime"]) == ("double-it", {"type": "subprocess"})
    told = {"model": "arithmetic", "num_rollouts": 2, "push": False, "select": {"skip": 0, "limit": 4}}
    assert settings.items() >= told.items()

    lines = (folder / "traces.jsonl").read_text().splitlines()
    failed = json.dumps({**found[2], "ok": False})
    (folder / "traces.jsonl").write_text("\n".join([*reversed(lines[3:]), failed, lines[0], lines[1][:90]]))
    resumed = workspace.run(*COMMAND, f"--osmosis-resume-from={folder}/traces.jsonl", "--osmosis-save-results")
    notes = ("*1 rollout in the files: made again*", "*last line of traces.jsonl is torn*")
    resumed.stdout.fnmatch_lines_random([*notes, "*6 of 8 runs are from files"])
    assert runs_of(workspace) == then
    folders = (workspace.root / "outputs/evals/double-it--demo--arithmetic").iterdir()
    (other,) = (each for each in folders if each.name == workspace.run_dirs("double-it")[-1].name)
    assert {each["id"] for each in episodes(other)} >= {each["id"] for each in found[3:]}, "they are handed on whole"


def test_a_run_without_an_episode_of_its_own_has_one_made_of_its_line(workspace: Workspace) -> None:
    write(workspace)
    option = config(workspace, 'taskset = {breaks = {1 = "reward"}, n = 2}')
    workspace.run(option, "--osmosis-run=one")

    workspace.cli("runs", "export", "one", "--format=prime", "-o", "files")
    passed, failed = episodes(workspace.root / "files")
    (trace,) = passed["traces"]
    assert (trace["rewards"], trace["agent"]["name"]) == ({"reward": {"score": 0.875, "weight": 1.0}}, "agent")
    assert [(node["parent"], node["sampled"]) for node in trace["nodes"]] == [(None, False), (0, True)]
    (trace,) = failed["traces"]
    assert (failed["ok"], trace["errors"]) == (False, [{"type": "TaskError", "message": "TaskError: division by zero"}])


def test_other_settings_are_refused_but_another_runtime_is_not(workspace: Workspace) -> None:
    write(workspace)
    folder = saved(workspace)
    path = folder / "configs/resolved/eval.json"
    settings = read_json(path)
    settings["env"]["taskset"]["n"], settings["env"]["agent"]["runtime"] = 9, {"type": "prime"}
    path.write_text(json.dumps(settings))

    refused = workspace.run(*COMMAND, f"--osmosis-resume-from={folder}", exits=4)

    assert refused.stderr.str().count(" -> ") == 1
    refused.stderr.fnmatch_lines(["  env.taskset.n: 9 -> not set"])


def test_files_of_verifiers_are_shown(workspace: Workspace) -> None:
    write(workspace)
    tables = 'taskset = {breaks = {1 = "sandbox"}}\n[limits]\nmax_errors = "100%"'
    folder = saved(workspace, config(workspace, tables))

    page = workspace.cli("show", "files")
    said = ("files: finished, 4 of 4 planned runs ended", "3 of 4 runs passed*", "every run: *show files --all")
    page.stdout.fnmatch_lines_random([*said])
    of_run = workspace.cli("show", "files", "row1-run0").stdout
    of_run.fnmatch_lines(["*boundary host", "  error: SandboxError: no box"])
    (metadata,) = (workspace.root / "outputs").rglob("metadata.json")
    shutil.copy(metadata, folder)
    workspace.cli("show", "files").stdout.fnmatch_lines([f"{metadata.parent.name}: finished"])


def write_like_verifiers(folder: Path, env_args: dict[str, Any]) -> None:
    """Write files as verifiers 0.1.14 does: two rollouts of two examples, one of which ended with an error."""

    def line(example: int, reward: float, error: str | None = None) -> dict[str, Any]:
        question = f"my-env {json.dumps(env_args)}: 6 * {7 + example}?"
        failed = {"error": error, "error_chain_repr": f"{error}()", "error_chain_str": error}
        told = {"example_id": example, "prompt": [{"role": "user", "content": question}], "metrics": {"exact": reward}}
        said = [] if error else [{"role": "assistant", "content": "taken over"}]
        return {**told, "completion": said, "error": failed if error else None, "reward": reward, "exact": reward}

    lines = [line(0, 0.25), line(0, 0.0, "ModelError"), line(1, 0.75), line(1, 0.0)]
    sampling = {"state_columns": [], "sampling_args": {"n": 1, "extra_body": {}, "max_tokens": None}}
    metadata = {"env_id": "my-env", "env_args": env_args, "rollouts_per_example": 2, "model": "openai/gpt-4.1-mini"}
    folder.mkdir()
    (folder / "metadata.json").write_text(
        json.dumps({**metadata, **sampling, "version_info": {"vf_version": "0.1.14"}})
    )
    (folder / "results.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def test_rewards_in_files_of_verifiers_stay(workspace: Workspace) -> None:
    page_environments.write(workspace.root, "my-env")
    write_like_verifiers(workspace.root / "vf", {"hard": True})
    rows = ("--osmosis-rollouts-per-example=2", "--osmosis-num-examples=3", '--osmosis-env-args={"hard": true}')
    with ChatServer(answered(lambda _: "42")) as server:
        asked = ("--osmosis-model=openai/gpt-4.1-mini", f"--osmosis-api-base-url={server.base_url}")
        command = ("--osmosis-env=my-env", *asked, *rows, "--osmosis-run=second")
        result = workspace.run(*command, "--osmosis-resume-from=vf")
        assert len(server.requests) == 3 + 1, "the other rollouts and the probe"
    made_again = "*1 rollout in the files: made again, because they ended with an error"
    result.stdout.fnmatch_lines_random([made_again, "*3 of 6 runs are from vf"])

    def scores() -> dict[tuple[int, int], Any]:
        rows = read_json(workspace.root / ".osmosis/runs/second/results.json")["rows"]
        return {
            (row["row_index"], run["run_index"]): run["scores"].get("reward") for row in rows for run in row["runs"]
        }

    taken = {(0, 0): 0.25, (0, 1): 1.0, (1, 0): 0.75, (1, 1): 0.0, (2, 0): 1.0, (2, 1): 1.0}
    assert scores() == taken
    assert workspace.run(*command).ret == result.ret
    assert scores() == taken
    workspace.run("--osmosis-from=second")
    assert scores()[0, 0] == 0.0, "the rubric does not take the answer that was taken over"
