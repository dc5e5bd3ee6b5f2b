"""Workflows and Graders of `osmosis_ai` 0.3: the SDK's own if it is installed, or else what stands in for them."""

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
from tests.host.sdk_cases import CODE, LATE, LIMIT_S, ROWS
from tests.host.test_host_contracts import entrypoint_error

IN_TIME = [name for name in ROWS if name not in LATE]
MINE: Mapping[str, Any] = {"experiment": {"rollout": "mine", "entrypoint": "main.py"}, "scoring": {"eval_fns": []}}


def has_backend() -> bool:
    """True if an SDK is installed with which to compare."""
    return importlib.util.find_spec("osmosis_ai") is not None


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


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
        ("a workflow that raises", "agent", "ValueError: bad"),
        ("a workflow with a timeout of its own", "agent", "TimeoutError: mine"),
        ("a slow workflow", "timeout", f"took longer than {LIMIT_S:g} s (agent_workflow_timeout_s)"),
        ("two sources", "agent", "RolloutContext already has a sample source"),
        ("a source of something else", "agent", "TypeError"),
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
