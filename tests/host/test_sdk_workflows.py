"""Workflows and Graders of `osmosis_ai` 0.3: the SDK's own if it is installed, or else what stands in for them.

`ROWS` holds the end of each rollout in the SDK: "success" with its reward, "skipped" or "failed".
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_osmosis.record.run_record import RunRecord
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.host.test_host_contracts import entrypoint_error

LIMIT_S = 2.0
LATE = {"a slow workflow": "agent_workflow_timeout_s", "a slow Grader": "grader_timeout_s"}
"""The rows that end only with their time, and the limit that ends them: `LIMIT_S`."""

CODE = """
import asyncio
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.context import AgentWorkflowContext, GraderContext, SampleSource, get_rollout_context
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types import AgentWorkflowConfig, AgentWorkflowOutput, GraderConfig, RolloutSample

NAN, INFINITY = float("nan"), float("inf")
ANSWER = [{"role": "user", "content": "what?"}, {"role": "assistant", "content": "42"}]


class FlowConfig(AgentWorkflowConfig):
    name: str = "flow"
    seen: list = []


class JudgeConfig(GraderConfig):
    name: str = "judge"
    right: str = "42"


flow_config, judge_config = FlowConfig(mood="kind"), JudgeConfig()


class Source(SampleSource):
    def __init__(self, **fields):
        self.fields = fields

    async def get_sample(self):
        return RolloutSample(messages=ANSWER, **self.fields)


class Flow(AgentWorkflow):
    async def run(self, ctx: AgentWorkflowContext):
        case = ctx.prompt[-1]["content"] if ctx.prompt else ctx.metadata["case"]
        assert self.config is ctx.config and ctx.config is not flow_config and ctx.config.mood == "kind"
        ctx.config.seen.append(case)
        assert ctx.config.seen == [case], "each rollout has a config of its own"
        assert ctx.artifacts_dir.is_dir()
        rollout = get_rollout_context()
        match case:
            case "output":
                return AgentWorkflowOutput(messages=ANSWER, metrics={"turns": 2}, info={"note": "brief"})
            case "output without messages":
                return AgentWorkflowOutput(metrics={"turns": 2})
            case "output with nan":
                return AgentWorkflowOutput(messages=ANSWER, metrics={"turns": NAN})
            case "output with a later nan":
                output = AgentWorkflowOutput(messages=ANSWER)
                output.metrics["turns"] = INFINITY
                return output
            case "output with another field":
                return AgentWorkflowOutput(messages=ANSWER, score=1.0)
            case "source":
                rollout.set_sample_source(Source())
            case "source and output":
                rollout.set_sample_source(Source(reward=0.125))
                return ANSWER
            case "source with a reward":
                rollout.set_sample_source(Source(reward=0.25, extra_fields={"by": "source"}, metrics={"f1": 0.5}))
            case "source that removes":
                rollout.set_sample_source(Source(remove_sample=True))
            case "source of something else":
                rollout.set_sample_source(type("Odd", (SampleSource,), {"get_sample": lambda self: 3})())
            case "two sources":
                rollout.set_sample_source(Source())
                rollout.set_sample_source(Source())
            case "nothing":
                pass
            case "text":
                return "42"
            case "messages of text":
                return ["42"]
            case "messages without roles":
                return [*ANSWER, {"type": "function_call_output", "output": "42"}]
            case "raises":
                raise ValueError("bad")
            case "its own timeout":
                raise TimeoutError("mine")
            case "slow":
                await asyncio.sleep(60)
            case _:
                return ANSWER


class Judge(Grader):
    async def grade(self, ctx: GraderContext):
        case = ctx.metadata["case"] if ctx.metadata else (ctx.label or "").partition(": ")[2]
        assert self.config.right == "42" and get_rollout_context() is None and ctx.artifacts_dir.is_dir()
        match case:
            case "no reward":
                return 1.0
            case "nan":
                ctx.set_reward(NAN)
            case "infinity":
                ctx.sample.reward = INFINITY
            case "raises":
                raise KeyError("no such thing")
            case "removes":
                ctx.sample.remove_sample = True
            case "removes and rewards":
                ctx.set_reward(0.5)
                ctx.sample.remove_sample = True
            case "a number as text":
                ctx.set_reward("0.5")
            case "text":
                ctx.set_reward("good")
            case "true":
                ctx.set_reward(True)
            case "another sample":
                ctx.sample = RolloutSample(messages=[], reward=0.75)
            case "no sample":
                ctx.sample = None
            case "slow":
                await asyncio.sleep(60)
            case "metrics":
                assert ctx.sample.metrics == {"turns": 2.0} and ctx.sample.trajectory_messages == ANSWER
                ctx.sample.metrics["overlap"] = 0.5
                ctx.sample.extra_fields["judge"] = "x"
                ctx.set_reward(1.0)
            case "kept":
                assert ctx.sample.metrics == {"f1": 0.5} and ctx.sample.extra_fields == {"by": "source"}
            case _:
                assert ctx.sample.label in (None, ctx.label)
                ctx.set_reward(float(ctx.sample.messages[-1].get("content") == self.config.right))
"""

FAILED = ("failed", None)
ROWS: Mapping[str, tuple[dict[str, Any], tuple[str, float | None]]] = {
    "messages": ({"user_prompt": "list", "ground_truth": "x"}, ("success", 1.0)),
    "messages without roles": ({"user_prompt": "messages without roles", "ground_truth": "x"}, ("success", 0.0)),
    "an output with metrics": ({"user_prompt": "output", "ground_truth": "x: metrics"}, ("success", 1.0)),
    "an output without messages": ({"user_prompt": "output without messages", "ground_truth": "x"}, FAILED),
    "an output with nan": ({"user_prompt": "output with nan", "ground_truth": "x"}, FAILED),
    "an output with a later nan": ({"user_prompt": "output with a later nan", "ground_truth": "x"}, FAILED),
    "an output with another field": ({"user_prompt": "output with another field", "ground_truth": "x"}, FAILED),
    "a source": ({"user_prompt": "source", "ground_truth": "x"}, ("success", 1.0)),
    "a source and an output": ({"user_prompt": "source and output", "ground_truth": "x"}, ("success", 1.0)),
    "a source with a reward": ({"user_prompt": "source with a reward", "ground_truth": "x: kept"}, ("success", 0.25)),
    "a source that removes": ({"user_prompt": "source that removes", "ground_truth": "x"}, ("skipped", None)),
    "a source of something else": ({"user_prompt": "source of something else", "ground_truth": "x"}, FAILED),
    "two sources": ({"user_prompt": "two sources", "ground_truth": "x"}, FAILED),
    "None without a source": ({"user_prompt": "nothing", "ground_truth": "x"}, FAILED),
    "a text": ({"user_prompt": "text", "ground_truth": "x"}, FAILED),
    "messages of text": ({"user_prompt": "messages of text", "ground_truth": "x"}, FAILED),
    "a workflow that raises": ({"user_prompt": "raises", "ground_truth": "x"}, FAILED),
    "a workflow with a timeout of its own": ({"user_prompt": "its own timeout", "ground_truth": "x"}, FAILED),
    "a slow workflow": ({"user_prompt": "slow", "ground_truth": "x"}, FAILED),
    "no reward": ({"user_prompt": "list", "ground_truth": "x: no reward"}, FAILED),
    "a nan": ({"user_prompt": "list", "ground_truth": "x: nan"}, FAILED),
    "an infinity": ({"user_prompt": "list", "ground_truth": "x: infinity"}, FAILED),
    "a Grader that raises": ({"user_prompt": "list", "ground_truth": "x: raises"}, FAILED),
    "a Grader that removes": ({"user_prompt": "list", "ground_truth": "x: removes"}, ("skipped", None)),
    "removes and rewards": ({"user_prompt": "list", "ground_truth": "x: removes and rewards"}, ("skipped", None)),
    "a number as text": ({"user_prompt": "list", "ground_truth": "x: a number as text"}, ("success", 0.5)),
    "a text as reward": ({"user_prompt": "list", "ground_truth": "x: text"}, FAILED),
    "true": ({"user_prompt": "list", "ground_truth": "x: true"}, ("success", 1.0)),
    "another sample": ({"user_prompt": "list", "ground_truth": "x: another sample"}, ("success", 0.75)),
    "no sample any more": ({"user_prompt": "list", "ground_truth": "x: no sample"}, FAILED),
    "a slow Grader": ({"user_prompt": "list", "ground_truth": "x: slow"}, FAILED),
    "neither label nor metadata": ({"user_prompt": "list"}, FAILED),
    "an empty label": ({"user_prompt": "list", "ground_truth": ""}, FAILED),
    "a number as label": ({"user_prompt": "list", "ground_truth": 42}, ("success", 1.0)),
    "metadata alone": ({"metadata": {"case": "source"}}, ("success", 1.0)),
    "metadata as text": ({"metadata": '{"case": "true"}'}, ("success", 1.0)),
    "metadata with a prompt": ({"user_prompt": "list", "metadata": {"case": "true"}}, ("success", 1.0)),
}
"""By what they try: a row, and the end of its rollout."""
IN_TIME = [name for name in ROWS if name not in LATE]
MINE: Mapping[str, Any] = {"experiment": {"rollout": "mine", "entrypoint": "main.py"}, "scoring": {"eval_fns": []}}


def has_backend() -> bool:
    """True if an SDK is installed with which to compare."""
    return importlib.util.find_spec("osmosis_ai") is not None


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """An eval of all rows that end by themselves."""
    return ended(tmp_path_factory, IN_TIME)


@pytest.fixture(scope="module")
def records(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, RunRecord]:
    """The records of all rows. Each that ends only with its time has an eval of its own."""
    late = {name: ended(tmp_path_factory, [name], **{key: LIMIT_S}).record(0) for name, key in LATE.items()}
    return {name: late[name] if name in LATE else live.record(IN_TIME.index(name)) for name in ROWS}


def ended(tmp_path_factory: pytest.TempPathFactory, names: Sequence[str], **evaluation: float) -> Live:
    workspace = Workspace(tmp_path_factory.mktemp("sdk"))
    workspace.rows([ROWS[name][0] for name in names])
    workspace.write("rollouts/mine/main.py", CODE)
    return evaluated(workspace.config(None, **MINE, evaluation={"batch_size": 8, **evaluation}))


def end_of(record: RunRecord) -> tuple[str, float | None]:
    if record.removed:
        return "skipped", None
    return ("success", record.scores["reward"]) if record.scores else ("failed", None)


def fields_of(record: RunRecord) -> dict[str, Any]:
    return {source: json.loads(fields) for source, fields in record.notes.fields.items()}


def test_every_rollout_ends_as_in_the_sdk(records: Mapping[str, RunRecord]) -> None:
    ends = {name: end_of(record) for name, record in records.items()}
    assert ends == {name: end for name, (_, end) in ROWS.items()}


@pytest.mark.skipif(not has_backend(), reason="osmosis_ai is not installed, so there is nothing to compare with")
def test_the_backend_of_the_sdk_ends_them_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("main")
    exec(CODE, vars(module))
    ends = {name: asyncio.run(end_in_backend(module, name)) for name in ROWS}
    assert ends == {name: end for name, (_, end) in ROWS.items()}


async def end_in_backend(module: Any, name: str) -> tuple[str, float | None]:
    """Return how the SDK's own `LocalBackend` ends a rollout of a row, as its local evals prepare it."""
    from osmosis_ai.eval.local.dataset import normalize_row  # type: ignore[import-not-found]
    from osmosis_ai.rollout import ExecutionRequest, LocalBackend  # type: ignore[import-not-found]

    configs = {"workflow_config": module.flow_config, "grader_config": module.judge_config}
    backend = LocalBackend(workflow=module.Flow, grader=module.Judge, **configs)
    limit_s = LIMIT_S if name in LATE else 600.0
    normal = normalize_row({"ground_truth": None, "metadata": None, **ROWS[name][0]}, row_index=0, source_row_index=0)
    row = {"prompt": normal.initial_messages, "label": normal.label, "metadata": normal.metadata}
    limits = {"agent_timeout_sec": limit_s, "grader_timeout_sec": limit_s}
    outcome = await backend.execute(ExecutionRequest(id=str(list(ROWS).index(name)), **row, **limits))
    graded = outcome.grader
    if outcome.workflow.status != "success" or graded is None or graded.status != "success":
        return "failed", None
    return ("skipped", None) if graded.sample.remove_sample else ("success", graded.sample.reward)


@pytest.mark.parametrize(
    ("name", "boundary", "text"),
    [
        ("an output without messages", "agent", "Flow.run() returned no messages, so there is nothing to grade"),
        ("None without a source", "agent", "Flow.run() returned None and registered no sample source"),
        ("a text", "agent", "run() must return AgentWorkflowOutput, a message list, or None; got str"),
        ("a workflow with a timeout of its own", "agent", "TimeoutError: mine"),
        ("a slow workflow", "timeout", f"took longer than {LIMIT_S:g} s (agent_workflow_timeout_s)"),
        ("two sources", "agent", "RolloutContext already has a sample source"),
        ("no reward", None, "Judge.grade() set no reward: call ctx.set_reward(...)"),
        ("a nan", None, "Input should be a finite number"),
        ("a Grader that raises", None, "KeyError: 'no such thing'"),
        ("neither label nor metadata", None, "the row has neither a ground_truth (label) nor metadata"),
    ],
)
def test_what_keeps_a_rollout_from_its_reward_is_said(
    records: Mapping[str, RunRecord], name: str, boundary: str | None, text: str
) -> None:
    record = records[name]
    assert record.boundary == boundary
    assert text in (record.error or record.scorer_errors["reward"].message)


def test_metrics_and_further_facts_are_kept(records: Mapping[str, RunRecord]) -> None:
    record = records["an output with metrics"]
    assert record.metrics == {"rollout": {"turns": 2.0}, "reward": {"overlap": 0.5}}
    assert fields_of(record) == {"rollout": {"note": "brief"}, "reward": {"judge": "x"}}
    record = records["a source with a reward"]
    assert (record.metrics, fields_of(record)) == ({"rollout": {"f1": 0.5}}, {"rollout": {"by": "source"}})


def test_empty_folders_for_artifacts_are_not_kept(live: Live) -> None:
    assert not list((live.run.directory.path / "artifacts").glob("*"))


OLDER = """
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.context import SampleSource, get_rollout_context
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.types import RolloutSample

class Source(SampleSource):
    def __init__(self, answer):
        self.answer = answer

    async def get_sample(self, name):
        return RolloutSample(id=name, messages=[{"role": "assistant", "content": self.answer}])

class Flow(AgentWorkflow):
    async def run(self, ctx):
        register = get_rollout_context().register_sample_source
        case = ctx.prompt[-1]["content"]
        for number in range(int(case)):
            register(f"sample{number}", Source("42" if number == 0 else "41"))
        if case == "0":
            register("twice", Source("42"))
            register("twice", Source("42"))

class Judge(Grader):
    async def grade(self, ctx):
        for name, sample in ctx.get_samples().items():
            assert sample.id == name
            if ctx.label != "ungraded" or name == "sample0":
                ctx.set_sample_reward(name, float(sample.messages[-1]["content"] == "42"))
            sample.remove_sample = ctx.label == "all removed" or (name == "sample1" and ctx.label == "one removed")
            sample.metrics["length"] = 2
"""


@pytest.mark.skipif(has_backend(), reason="osmosis_ai is installed, and has one sample for a rollout")
def test_before_0_3_a_rollout_may_have_several_samples(workspace: Workspace) -> None:
    rows = [("1", "42"), ("2", "42"), ("2", "one removed"), ("2", "all removed"), ("2", "ungraded"), ("0", "42")]
    workspace.rows([{"user_prompt": number, "ground_truth": label} for number, label in rows])
    workspace.write("rollouts/mine/main.py", OLDER)
    live = evaluated(workspace.config(None, **MINE))
    successes, failed = [("success", 1.0), ("success", 0.5), ("success", 1.0)], ("failed", None)
    assert [end_of(live.record(row)) for row in range(6)] == [*successes, ("skipped", None), failed, failed]
    assert "'twice': there is such a sample source already" in str(live.record(5).error)
    assert live.record(1).metrics["reward"] == {"sample0.length": 2.0, "sample1.length": 2.0}
    assert fields_of(live.record(1))["reward"] == {"rewards": {"sample0": 1.0, "sample1": 0.0}}


BACKEND = """
from osmosis_ai.rollout.backend.local import LocalBackend
from osmosis_ai.rollout.server import create_rollout_server

class Strict(Judge):
    async def grade(self, ctx):
        ctx.set_reward(0.0)

class Lenient(Judge):
    async def grade(self, ctx):
        ctx.set_reward(0.5)

lenient_config = JudgeConfig(name="lenient")
backend = LocalBackend(workflow="main:Flow", workflow_config=flow_config, grader=Lenient, grader_config=lenient_config)
app = create_rollout_server(backend=backend)
"""


def test_a_backend_in_the_entrypoint_says_which_classes_it_serves(workspace: Workspace) -> None:
    pytest.importorskip("fastapi" if has_backend() else "pydantic")  # the SDK makes a server of it
    workspace.rows([{"user_prompt": "list", "ground_truth": "x"}])
    workspace.write("rollouts/mine/main.py", CODE + BACKEND)
    assert evaluated(workspace.config(None, **MINE)).record(0).scores == {"reward": 0.5}


IN_CONTAINERS = """
from harbor.trial.queue import TrialQueue
from osmosis_ai.rollout.backend.harbor import HarborBackend
backend = HarborBackend(orchestrator=TrialQueue(), agent=Flow)
"""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (BACKEND.partition("lenient_config")[0], "must hold one concrete Grader, found 2: Lenient, Strict"),
        ("another = JudgeConfig()\n", "must hold at most one GraderConfig, found 2"),
        (IN_CONTAINERS, "uses HarborBackend, which runs the workflow in a container"),  # no module of it is imported
    ],
)
def test_classes_and_backends_that_cannot_be_used_are_refused(workspace: Workspace, code: str, text: str) -> None:
    assert text in entrypoint_error(workspace, CODE + code)


@pytest.mark.parametrize("grader", [{}, {"grader": "flows:Judge"}])
def test_classes_of_a_config_count_before_the_entrypoints(workspace: Workspace, grader: Mapping[str, str]) -> None:
    workspace.rows([{"user_prompt": "list", "ground_truth": "x"}])
    workspace.write("rollouts/mine/flows.py", CODE)
    imports = "\nimport harbor\n" if grader else "def main():\n    "  # if both are named, it is not even imported
    serving = f"{imports}from osmosis_ai.rollout.backend.harbor import HarborBackend; HarborBackend()\n"
    workspace.write("rollouts/mine/main.py", CODE + serving)
    tables = {**MINE, "agent": {"agent": "flows:Flow"}, "scoring": {"eval_fns": [], **grader}}
    assert evaluated(workspace.config(None, **tables)).kinds() == ["passed"]
