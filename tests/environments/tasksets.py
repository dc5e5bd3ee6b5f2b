"""A taskset, and the least of verifiers 0.4 that it needs: `verifiers.v1` by duck type, in one module.

An episode of it asks once for each agent. tests/verifiers has the same with verifiers itself.
"""

from __future__ import annotations

from tests.plugin.workspaces import Workspace

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

    async def relay(self, *args, **named):
        raise NotImplementedError


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
