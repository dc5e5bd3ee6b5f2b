"""Imports of `osmosis_ai` while it is stood in for; its names, those that user code imports and no others.

They are those that the contracts of agents need, as these sources import them: the repository of the page on eval mode
(osmosis-remote-rollout-example), the workspace template with its skeletons of entrypoints, what `osmosis rollout init`
writes, and the documented APIs of agent loops (0.2) and workflows (0.3).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis import osmosis_reward
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core import base, schemas
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.exceptions import ToolArgumentError
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.server import create_app
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.tools import create_tool_result, get_tool_call_info
from pytest_osmosis.addons.osmosis_sdk.shim import FOLDER, PACKAGE, SdkShim
from pytest_osmosis.addons.osmosis_sdk.workflows import other_backend
from pytest_osmosis.host.rollout_code import read_anew

needs_no_sdk = pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is not None, reason=f"{PACKAGE} is installed")


@pytest.fixture(autouse=True)
def imports() -> Iterator[None]:
    """Let a test import `osmosis_ai` anew, and forget that."""
    path = list(sys.path)
    before = forgotten()
    yield
    sys.path[:] = path
    forgotten()
    sys.modules.update(before)


def forgotten() -> dict[str, types.ModuleType]:
    """Remove the modules of `osmosis_ai`, and return them."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == PACKAGE}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """An installed package `osmosis_ai`, to which tests add modules."""
    package = tmp_path / "site" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '0.3.7'\n", encoding="utf-8")
    sys.path.insert(0, str(package.parent))
    importlib.invalidate_caches()
    return package


def imported(code: str) -> dict[str, object]:
    """Execute import statements, and return what they bind."""
    names: dict[str, object] = {}
    exec(code, names)
    return names


@needs_no_sdk
def test_without_the_sdk_its_names_come_from_here_and_no_trace_is_left() -> None:
    sdk_shim = SdkShim()

    with sdk_shim.active():
        found = imported(
            "from osmosis_ai import osmosis_reward\nimport osmosis_ai.rollout.tools as tools\nimport osmosis_ai"
        )

    assert found["osmosis_reward"] is osmosis_reward
    assert getattr(found["tools"], "create_tool_result") is create_tool_result  # noqa: B009
    assert sdk_shim.notes[0].startswith("osmosis_ai is not installed: pytest-osmosis stands in for it")
    assert [name for name in sys.modules if name.partition(".")[0] == PACKAGE] == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(PACKAGE)


@needs_no_sdk
def test_names_below_a_package_need_no_import_and_an_unknown_one_is_an_error_that_names_our_file() -> None:
    with SdkShim().active():
        assert importlib.import_module(PACKAGE).rollout.tools.create_tool_result is create_tool_result
        assert "osmosis_reward" in imported("from osmosis_ai import *")
        with pytest.raises(ImportError, match=r"cannot import name 'nothing' from 'osmosis_ai' \(.*osmosis_sdk"):
            imported("from osmosis_ai import nothing")
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'osmosis_ai\.nothing'"):
            imported("import osmosis_ai.nothing")


def test_names_of_the_installed_sdk_win_and_those_that_it_lacks_are_added(installed: Path) -> None:
    (installed / "rollout").mkdir()
    (installed / "rollout/__init__.py").touch()
    (installed / "rollout/tools.py").write_text("def execute_tool_calls(): ...\n", encoding="utf-8")
    sdk_shim = SdkShim()

    with sdk_shim.active():
        found = imported(
            "from osmosis_ai import __version__, osmosis_reward\n"
            "from osmosis_ai.rollout.tools import create_tool_result, execute_tool_calls"
        )
        module = sys.modules["osmosis_ai.rollout.tools"]

    assert (found["__version__"], found["osmosis_reward"]) == ("0.3.7", osmosis_reward)
    assert found["create_tool_result"] is create_tool_result
    assert getattr(found["execute_tool_calls"], "__module__", None) == "osmosis_ai.rollout.tools"
    assert sdk_shim.notes[0].startswith("pytest-osmosis adds names that the installed osmosis_ai lacks")
    assert not hasattr(module, "create_tool_result")
    assert type(module.__loader__).__name__ == "SourceFileLoader"


def test_a_module_that_the_installed_sdk_lacks_is_added_and_removed(installed: Path) -> None:
    sdk_shim = SdkShim()

    with sdk_shim.active():
        code = "from osmosis_ai.rollout.tools import create_tool_result"
        assert imported(code)["create_tool_result"] is create_tool_result

    package = sys.modules[PACKAGE]
    assert package.__file__ == str(installed / "__init__.py")
    assert "osmosis_ai.rollout.tools" not in sys.modules
    assert not hasattr(package, "rollout")


def test_an_sdk_that_was_imported_before_gets_names_only_for_the_time(installed: Path) -> None:
    (installed / "__init__.py").write_text(
        "def __getattr__(name):\n    if name == 'own':\n        return 1\n    raise AttributeError(name)\n",
        encoding="utf-8",
    )
    package = importlib.import_module(PACKAGE)
    own = vars(package)["__getattr__"]

    with SdkShim().active():
        assert (package.own, package.osmosis_reward) == (1, osmosis_reward)

    assert vars(package)["__getattr__"] is own
    assert package.own == 1
    with pytest.raises(AttributeError):
        _ = package.osmosis_reward


LAZY = """
from importlib import import_module

def __getattr__(name):
    if name not in {names}:
        raise AttributeError(name)
    try:
        value = getattr(import_module({leaf!r}), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("install an extra", name=error.name) from error
    globals()[name] = value
    return value
"""
"""A module of the SDK that loads a name when it is asked for, and then keeps it."""


def without_extra(installed: Path, package: str, leaf: str, *names: str) -> None:
    """Add a package of the SDK whose names come from a module that imports what an extra would have installed."""
    folder = installed.joinpath(*package.split("."))
    folder.mkdir(parents=True)
    for parent in folder.relative_to(installed).parents:
        (installed / parent / "__init__.py").touch()
    source = LAZY.format(names=names, leaf=f"{PACKAGE}.{package}.{leaf}")
    (folder / "__init__.py").write_text(source, encoding="utf-8")
    source = "early = 1\nimport a_missing_extra\nfrom a_missing_extra import *\n"
    (folder / f"{leaf}.py").write_text(source, encoding="utf-8")


def test_a_name_whose_extra_is_missing_is_stood_in_for_and_no_trace_is_left(installed: Path) -> None:
    without_extra(installed, "rollout.server", "app", "create_rollout_server")
    code = "from osmosis_ai.rollout.server import create_rollout_server"
    sdk_shim = SdkShim()

    with sdk_shim.active():
        found = imported(code)["create_rollout_server"]

    assert found.__module__.startswith("pytest_osmosis.")
    assert sdk_shim.notes == (
        "pytest-osmosis adds names that the installed osmosis_ai lacks (osmosis_compat = false in pytest's "
        "configuration turns this off)",
    )
    with pytest.raises(ModuleNotFoundError, match="install an extra"):
        imported(code)


def test_a_missing_extra_is_named_as_the_sdk_does_where_nothing_can_sdk_shim(installed: Path) -> None:
    without_extra(installed, "rollout.backend.harbor", "backend", "HarborBackend")
    without_extra(installed, "rollout.integrations.agents", "none")
    (installed / "rollout/integrations/agents/strands.py").write_text(
        "raise ModuleNotFoundError('install an extra', name='a_missing_extra')\n", encoding="utf-8"
    )

    with SdkShim().active():
        with pytest.raises(ModuleNotFoundError, match="install an extra"):
            imported("from osmosis_ai.rollout.backend.harbor import HarborBackend")
        if importlib.util.find_spec("strands") is None:  # ours needs it too
            with pytest.raises(ModuleNotFoundError, match="install an extra"):
                imported("import osmosis_ai.rollout.integrations.agents.strands")


CONTEXT = """
class SampleSource: ...

class Context:
    chat_completions_url, api_key, source = "http://localhost/v1", None, None

    def set_sample_source(self, source):
        self.source = source

context = Context()

def get_rollout_context():
    return context
"""
STRANDS = """
class Agent:
    def __init__(self, **options): ...

class OpenAIModel:
    def __init__(self, **options): ...

class Model: ...
"""


def test_an_integration_whose_extra_is_missing_takes_part_in_the_rollout_of_the_sdk(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_extra(installed, "rollout.integrations.agents", "strands")
    (installed / "rollout/context.py").write_text(CONTEXT, encoding="utf-8")
    (installed / "rollout/types.py").write_text("class RolloutSample: ...\n", encoding="utf-8")
    framework = types.ModuleType("strands")
    exec(STRANDS, vars(framework))
    name = "pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.integrations.agents.strands"
    for module in ("strands", "strands.models", "strands.models.model", "strands.models.openai"):
        monkeypatch.setitem(sys.modules, module, framework)
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))  # as it was, afterwards
    del sys.modules[name]

    with SdkShim().active():
        found = imported(
            "from osmosis_ai.rollout.context import context\n"
            "from osmosis_ai.rollout.integrations.agents.strands import OsmosisRolloutModel, OsmosisStrandsAgent\n"
            "agent = OsmosisStrandsAgent(model=OsmosisRolloutModel(), name='multiply')\n"
        )

        assert not hasattr(sys.modules[f"{PACKAGE}.rollout.integrations.agents.strands"], "early")

    assert found["context"].source.agent is found["agent"]  # type: ignore[attr-defined]
    assert f"{PACKAGE}.rollout.integrations.agents.strands" not in sys.modules


def test_a_module_of_the_sdk_that_it_lacks_itself_is_its_own_error(installed: Path) -> None:
    (installed / "rollout.py").write_text("import osmosis_ai.lost\n", encoding="utf-8")

    with SdkShim().active(), pytest.raises(ModuleNotFoundError, match=r"osmosis_ai\.lost"):
        imported("import osmosis_ai.rollout")


@pytest.mark.skipif(importlib.util.find_spec("uvicorn") is not None, reason="uvicorn is installed, so it is used")
def test_uvicorn_can_be_imported_and_serves_nothing() -> None:
    sdk_shim = SdkShim()
    with sdk_shim.active():
        uvicorn = imported("import uvicorn")["uvicorn"]
        with pytest.raises(RuntimeError, match="serves nothing"):
            uvicorn.run(object(), port=8000)  # type: ignore[attr-defined]

    assert sdk_shim.notes == ()
    assert "uvicorn" not in sys.modules


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
NAMES = sorted({(module, name) for each in (LOOPS, WORKFLOWS) for module in each for name in each[module].split()})


@pytest.mark.parametrize(("module", "name"), [*NAMES, ("uvicorn", "run")])
def test_a_name_can_be_imported(module: str, name: str) -> None:
    framework = {"openai_agents": "agents", "strands": "strands"}.get(module.rpartition(".")[2])
    if framework is not None:
        pytest.importorskip(framework)
    with SdkShim().active():
        assert getattr(importlib.import_module(module), name) is not None


def test_no_other_name_is_offered() -> None:
    offered: list[tuple[str, str]] = []
    for file in (FOLDER / PACKAGE).rglob("*.py"):
        module = ".".join(file.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")
        assigned = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.Assign)]
        lists = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
        offered += [(module, name) for node in lists for name in ast.literal_eval(node)]
    assert sorted(offered) == NAMES


# -- what agents of Osmosis 0.2 use outside of a rollout --------------------------------------------------


class Loop(base.RolloutAgentLoop):
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
