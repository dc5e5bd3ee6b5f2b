"""The names of the SDK that are stood in for, and entrypoints whose source tells that their workflow runs elsewhere.

They are those that the contracts of agents need, as these sources import them: the repository of the page on eval mode
(osmosis-remote-rollout-example), the workspace template with its skeletons of entrypoints, what `osmosis rollout init`
writes, and the documented APIs of agent loops (0.2) and workflows (0.3).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core import base, schemas
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.exceptions import ToolArgumentError
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.server import create_app
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.tools import get_tool_call_info
from pytest_osmosis.addons.osmosis_sdk.shim import FOLDER, PACKAGE, SdkShim
from pytest_osmosis.addons.osmosis_sdk.workflows import other_backend
from pytest_osmosis.host.rollout_code import read_anew

SCHEMAS = "OpenAIFunctionParametersSchema OpenAIFunctionPropertySchema OpenAIFunctionSchema OpenAIFunctionToolSchema"
TOOLS = "create_tool_error_result create_tool_result execute_tool_calls get_tool_call_info serialize_tool_result"
BASE = "RolloutAgentLoop RolloutContext RolloutResult"
LOOPS = {
    "osmosis_ai": "osmosis_reward",
    "osmosis_ai.rollout": f"RolloutRequest create_app CompletionsResult ToolArgumentError {BASE} {SCHEMAS} {TOOLS}",
    "osmosis_ai.rollout.client": "CompletionsResult",
    "osmosis_ai.rollout.core.base": BASE,
    "osmosis_ai.rollout.core.exceptions": "ToolArgumentError",
    "osmosis_ai.rollout.core.schemas": f"{SCHEMAS} RolloutRequest",
    "osmosis_ai.rollout.server": "create_app",
    "osmosis_ai.rollout.tools": TOOLS,
}
"""The names of agent loops, by module."""
CONTEXTS = "AgentWorkflowContext GraderContext SampleSource get_rollout_context"
TYPES = "AgentWorkflowConfig AgentWorkflowOutput BaseConfig ConcurrencyConfig GraderConfig"
TYPES += " GraderStatus RolloutErrorCategory RolloutSample RolloutStatus"
WORKFLOWS = {
    "osmosis_ai.rollout": f"AgentWorkflow Grader LocalBackend {CONTEXTS} {TYPES}",
    "osmosis_ai.rollout.agent_workflow": "AgentWorkflow",
    "osmosis_ai.rollout.backend.local": "LocalBackend",
    "osmosis_ai.rollout.context": f"RolloutContext {CONTEXTS}",
    "osmosis_ai.rollout.grader": "Grader",
    "osmosis_ai.rollout.integrations.agents.openai_agents": "OsmosisAgent OsmosisMemorySession OsmosisRolloutModel",
    "osmosis_ai.rollout.integrations.agents.strands": "OsmosisRolloutModel OsmosisStrandsAgent",
    "osmosis_ai.rollout.server": "create_rollout_server",
    "osmosis_ai.rollout.types": f"{TYPES} ExecutionOutcome",
}
"""The names of workflows and Graders, by module."""
NAMES = sorted({(module, name) for each in (LOOPS, WORKFLOWS) for module in each for name in each[module].split()})
FRAMEWORKS = {"openai_agents": "agents", "strands": "strands"}
"""The packages that modules of integrations need."""


@pytest.mark.parametrize(("module", "name"), [*NAMES, ("uvicorn", "run")])
def test_a_name_can_be_imported(module: str, name: str) -> None:
    framework = FRAMEWORKS.get(module.rpartition(".")[2])
    if framework is not None:
        pytest.importorskip(framework)
    with SdkShim().active():
        assert getattr(importlib.import_module(module), name) is not None


def test_no_other_name_is_offered() -> None:
    assert sorted(offered()) == NAMES


def offered() -> Iterator[tuple[str, str]]:
    """Yield each module below our `osmosis_ai` with each name that it lists, without importing integrations."""
    for file in (FOLDER / PACKAGE).rglob("*.py"):
        module = ".".join(file.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")
        assigned = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
        lists = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
        for node in lists:
            yield from ((module, name) for name in ast.literal_eval(node))


# -- what agents of Osmosis 0.2 use outside of a rollout --------------------------------------------------


class Loop(base.RolloutAgentLoop):
    """A loop that answers nothing."""

    name = "loop"

    def get_tools(self, request: schemas.RolloutRequest) -> list[schemas.OpenAIFunctionToolSchema]:
        function = schemas.OpenAIFunctionSchema(name="add", description="Add")
        return [schemas.OpenAIFunctionToolSchema(type="function", function=function)]

    async def run(self, ctx: base.RolloutContext) -> base.RolloutResult:
        return ctx.complete([])


def test_arguments_of_tools_are_read_from_json_and_dicts() -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}

    assert get_tool_call_info({"id": "call-1", "function": function}) == ("call-1", "add", {"a": 1})
    assert get_tool_call_info({"id": "call-1", "function": {"name": "add", "arguments": {"a": 1}}})[2] == {"a": 1}
    for broken, message in [("{", "Invalid JSON arguments"), ("[1]", "Expected dict from JSON"), (1, "got int")]:
        with pytest.raises(ToolArgumentError, match=message) as caught:
            get_tool_call_info({"id": "call-2", "function": {"name": "add", "arguments": broken}})
        assert (caught.value.tool_call_id, caught.value.tool_name) == ("call-2", "add")


def test_an_application_takes_what_code_does_to_it_and_its_loop_has_tools_without_a_rollout() -> None:
    app = create_app(Loop(), max_concurrent=3)
    app.state.started = True
    app.add_middleware(dict, allow_origins=["*"])
    app.include_router(app.router)

    @app.get("/health")  # type: ignore[untyped-decorator]  # as FastAPI's is not
    def health() -> str:
        return "ok"

    assert health() == "ok"
    assert [tool.function.name for tool in Loop().get_default_tools()] == ["add"]


HARBOR = "from osmosis_ai.rollout.backend.harbor import HarborBackend"
OWN = """from osmosis_ai.rollout import ExecutionBackend as Base
class Remote(Base):
    async def execute(self, request): ...
"""
MAKES = f"{HARBOR}\ndef make():\n    return HarborBackend()"


def found(tmp_path: Path, main: str, helper: str = "") -> str | None:
    (tmp_path / "main.py").write_text(main, encoding="utf-8")
    (tmp_path / "helper.py").write_text(helper, encoding="utf-8")
    read_anew([])
    return other_backend(tmp_path / "main.py", [str(tmp_path)])


@pytest.mark.parametrize(
    ("main", "line"),
    [
        (f"{HARBOR}\ndef main():\n    backend = HarborBackend(agent=Flow)\nmain()", 3),
        (f"def main():\n    {HARBOR}\n    create_rollout_server(backend=HarborBackend())", 3),
        (f"{HARBOR} as HB\nbackend = HB()", 2),
        ("import osmosis_ai.rollout.backend.harbor as h\ndef main(): serve(h.HarborBackend())", 2),
        ("from osmosis_ai.rollout.backend.harbor import *\nHarborBackend()", 2),
        (f"{HARBOR}\nmake = partial(HarborBackend, agent=Flow)", 2),
        (f"{HARBOR}\nclass Mine(HarborBackend): pass\ndef main(): Mine()", 2),
        (f"try:\n    {HARBOR}\n    b = HarborBackend()\nexcept ImportError:\n    b = LocalBackend()", 3),
        (f"{HARBOR}\ntext = {' + '.join(['1'] * 2000)}\nHarborBackend()", 3),
    ],
)
def test_each_use_of_the_backend_with_containers_is_found(tmp_path: Path, main: str, line: int) -> None:
    expected = f"{tmp_path / 'main.py'}: line {line} uses HarborBackend, which runs the workflow in a container"
    assert (found(tmp_path, main) or "").startswith(expected)


@pytest.mark.parametrize("main", ["from helper import make\nmake()", "import helper\nhelper.make()"])
def test_it_is_found_in_a_module_of_the_users(tmp_path: Path, main: str) -> None:
    assert (found(tmp_path, main, MAKES) or "").startswith(f"{tmp_path / 'helper.py'}: line 3 uses HarborBackend")


def test_a_backend_of_the_users_own_is_found_under_its_name(tmp_path: Path) -> None:
    text = found(tmp_path, f"{OWN}def main(): serve(Remote())") or ""
    assert "line 2 uses Remote, which runs the workflow in a way of its own" in text


@pytest.mark.parametrize(
    ("main", "helper"),
    [
        ("from osmosis_ai.rollout import LocalBackend\ndef main(): LocalBackend(workflow=Flow)", MAKES),
        (f"{HARBOR}\nbackend: HarborBackend | None = None\ndef f(b: HarborBackend) -> HarborBackend: ...", ""),
        (f"{HARBOR}\ndef f(b):\n    return isinstance(b, HarborBackend)", ""),
        ("from osmosis_ai.rollout import ExecutionBackend\nB = TypeVar('B', bound=ExecutionBackend)\nB()", ""),
        ("# HarborBackend is not used\n'HarborBackend'", ""),
        ("HarborBackend(", ""),
    ],
)
def test_what_builds_none_is_not_taken_for_one(tmp_path: Path, main: str, helper: str) -> None:
    assert found(tmp_path, main, helper) is None
