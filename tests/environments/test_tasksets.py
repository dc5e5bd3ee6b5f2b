"""Tasksets of verifiers 0.4 as evals, and their files, also those that a new run of an environment takes over.

`VERIFIERS` is the least of `verifiers.v1` that a taskset needs, by duck type. tests/verifiers compares both with
those of `vf-eval`, by verifiers itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.environments import page_environments
from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace, read_json, wait_until
from tests.servers import ChatServer, held, reply

VERIFIERS = """
import asyncio, contextlib, hashlib, json, sys, types, urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

__version__ = "0.4.0"
CACHE_DIR = Path("cache").absolute()
THREADS = ThreadPoolExecutor(8)  # not those of the loop, with which the endpoint finds its model


def module(name, **members):
    made = sys.modules[f"verifiers.{name}"] = types.ModuleType(f"verifiers.{name}")
    vars(made).update(members)


class Record(SimpleNamespace):
    def model_dump(self, **_):
        return {name: dumped(value) for name, value in vars(self).items() if value is not None}


def dumped(value):
    if isinstance(value, list):
        return [dumped(each) for each in value]
    if isinstance(value, dict):
        return {name: dumped(each) for name, each in value.items()}
    return value.model_dump() if isinstance(value, Record) else value


class Data(dict):
    def model_dump(self, mode):
        return dict(self)

    @classmethod
    def model_validate(cls, data):
        return cls(data)


class Task:
    def __init__(self, data, config=None):
        self.data, self.config = Data(data), config
        self.key = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    @classmethod
    def data_type(cls):
        return Data

    def rewards(self, reply):
        return {}


class Taskset:
    INFINITE = False
    limit = None

    def __init__(self, config):
        self.config = config

    @classmethod
    def task_type(cls):
        return cls.TASK

    @property
    def bounded(self):
        return self.limit is not None or not self.INFINITE

    def select(self, select):
        self.limit = select.limit
        return self

    def __iter__(self):
        for index, task in enumerate(self.load()):
            if index == self.limit:
                return
            yield type(task)({**task.data, "idx": index}, task.config)


def agents_of(config):
    return {name: each for name, each in vars(config).items() if isinstance(each, Agent)}


class EvalClient:
    def __init__(self, config):
        self.base_url, self.api_key = config.base_url, None

    async def get_response(self, dialect, body, sampling, session_id=None):
        content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(f"{self.base_url}/chat/completions", content, headers)
        answer = await asyncio.get_running_loop().run_in_executor(THREADS, urllib.request.urlopen, request)
        return json.load(answer)["choices"][0]["message"]["content"]


def trace_of(agent, task):
    return Record(
        id=uuid4().hex, agent=Record(name=agent, config={}), ok=True, errors=[], rewards={}, metrics={}, nodes=[],
        timing=Record(start=1.0, scoring=Record(start=0.0)), stop_condition=None, is_completed=True,
    )


class Env:
    def __init__(self, config):
        self.config = config
        self.taskset = __import__(config.taskset.id.replace("-", "_")).TASKSET(config.taskset)

    def complete(self, episode):
        return episode.ok

    @contextlib.asynccontextmanager
    async def serving(self):
        self.served = True
        yield

    def slots(self, task, n):
        return [task] * n

    async def run_slot(self, task, context, on_trace):
        assert self.served
        traces = []
        for name in agents_of(self.config):
            trace = trace_of(name, task)
            on_trace(trace)
            traces.append(trace)
            folder = CACHE_DIR / "runtimes" / "subprocess" / trace.id
            folder.mkdir(parents=True)
            await self.play(trace, task, context)
            folder.rmdir()
        about = Record(type="DoubleTask", data=dict(task.data), key=task.key)
        return Record(
            id=uuid4().hex, task=about, traces=traces, ok=all(trace.ok for trace in traces), errors=[],
            num_input_tokens=1, num_output_tokens=1,
        )

    async def play(self, trace, task, context):
        def add(sampled, **message):
            parent = len(trace.nodes) - 1 if trace.nodes else None
            trace.nodes.append(Record(sampled=sampled, message=message, parent=parent))

        client = sys.modules["verifiers.v1.interception.server"].resolve_client(context.client)
        messages = [{"role": "user", "content": task.data["prompt"]}]
        body = {"model": context.model, "messages": messages, **context.sampling}
        add(False, **messages[0])
        try:
            if task.data.get("breaks") == "sandbox":
                raise SandboxError("no box")
            reply = await client.get_response(None, body, context.sampling, session_id=trace.id)
            add(True, role="assistant", content=reply)
            trace.timing.scoring.start = 1.0
            trace.rewards = {
                name: Record(score=score, weight=weight)
                for name, (score, weight) in task.rewards(reply).items()
            }
            trace.metrics = {"length": float(len(reply))}
        except Exception as error:
            name = type(error).__name__ if isinstance(error, SandboxError) else "TaskError"
            trace.ok = False
            trace.errors = [Record(type=name, message=str(error), traceback="its traceback")]


class SandboxError(Exception):
    pass


def resolve_env_config(given):
    unknown = given.keys() - {"taskset", "agent", "judge"}
    if unknown:
        raise ValueError(f"extra keys: {unknown}")
    agents = {}
    for name in ("agent", *(["judge"] if "judge" in given else [])):
        keys = given.get(name, {})
        runtime = Record(**keys.get("runtime", {"type": "prime"}))
        agents[name] = Agent(runtime=runtime, harness={}, model=keys.get("model"), client=keys.get("client"))
        agents[name].model_fields_set = set(keys)
    return Config(taskset=Record(task=None, **given["taskset"]), **agents)


class Agent(Record):
    def model_dump(self, **_):
        return {name: dumped(value) for name, value in vars(self).items() if name != "model_fields_set"}


class Config(Record):
    pass


module("v1", Task=Task, Taskset=Taskset)
module("v1.taskset", Taskset=Taskset)
module("v1.configs.agent", agent_config_fields=agents_of)
module("v1.configs.select", SelectConfig=lambda limit=None: SimpleNamespace(limit=limit))
module("v1.types", SamplingConfig=dict)
module("v1.errors", model_error=lambda text, status_code: RuntimeError(text))
module("v1.clients", ModelContext=SimpleNamespace, EvalClientConfig=SimpleNamespace)
module("v1.clients.eval", EvalClient=EvalClient)
module("v1.interception.server", resolve_client=EvalClient)
module("v1.utils.paths", CACHE_DIR=CACHE_DIR)
module("v1.utils.loaders", resolve_env_config=resolve_env_config, load_environment=Env)
"""
TASKSET = """
import sys

import verifiers
from verifiers import Task, Taskset

assert "pytest" not in sys.modules, "imported in pytest's own process"
__all__ = ["DoubleIt"]


class DoubleTask(Task):
    def rewards(self, reply):
        if self.data.get("breaks") == "reward":
            raise ZeroDivisionError("division by zero")
        return {"exact": (float(self.data["answer"] in reply), 0.75), "polite": (0.5, 0.25)}


class DoubleIt(Taskset):
    TASK = DoubleTask
    INFINITE = False

    def load(self):
        breaks = getattr(self.config, "breaks", {})
        for n in range(getattr(self.config, "n", 4)):
            data = {"prompt": f"What is {n} * 2?", "answer": str(n * 2)}
            yield DoubleTask({**data, "breaks": breaks[str(n)]} if str(n) in breaks else data)


TASKSET = DoubleIt
"""


def write(workspace: Workspace, source: str = TASKSET) -> None:
    """Write the taskset `double-it`, and what stands for verifiers."""
    workspace.write("verifiers/__init__.py", VERIFIERS)
    workspace.write("environments/double_it/double_it.py", source)


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


def write_like_verifiers(workspace: Workspace, folder: str, model: str, **env_args: Any) -> None:
    """Write files as verifiers 0.1.14 does, of one rollout."""
    asked = {"role": "user", "content": f"my-env {json.dumps(env_args)}: 6 * 7?"}
    said = {"role": "assistant", "content": "taken over"}
    line = {"example_id": 0, "prompt": [asked], "completion": [said], "metrics": {}, "error": None, "reward": 0.25}
    metadata = {"env_id": "my-env", "env_args": env_args, "rollouts_per_example": 1, "model": model}
    workspace.write(f"{folder}/metadata.json", json.dumps({**metadata, "version_info": {"vf_version": "0.1.14"}}))
    workspace.write(f"{folder}/results.jsonl", f"{json.dumps(line)}\n")


def test_rewards_in_files_of_verifiers_stay_until_they_are_scored_again(workspace: Workspace) -> None:
    page_environments.write(workspace.root, "my-env")
    write_like_verifiers(workspace, "vf", "demo/arithmetic")
    command = ("--osmosis-env=my-env", "--osmosis-model=demo/arithmetic", "--osmosis-n=1", "--osmosis-run=x")

    workspace.run(*command, "--osmosis-resume-from=vf").stdout.fnmatch_lines(["*1 of 4 runs is from vf"])
    assert workspace.results()["rows"][0]["runs"][0]["scores"] == {"reward": 0.25}
    workspace.run(*command)
    assert workspace.results()["rows"][0]["runs"][0]["scores"] == {"reward": 0.25}
    workspace.run("--osmosis-from=x")
    assert workspace.results()["rows"][0]["runs"][0]["scores"] == {"reward": 0.0}
