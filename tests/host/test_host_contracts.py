"""The forms that user code may have, and the errors for code that does not load or has another form."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.errors import CodeError
from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated
from tests.servers import ChatServer, reply

WORKFLOW = """
from pytest_osmosis import AgentWorkflow, AgentWorkflowOutput, Grader

class Flow(AgentWorkflow):
    async def run(self, ctx):
        reply = await ctx.chat(ctx.prompt)
        return AgentWorkflowOutput(messages=[*ctx.prompt, reply.message])

class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, rows=2)


def evaluate_entrypoint(workspace: Workspace, code: str, name: str = "main.py", **files: str) -> Live:
    """Run an eval of the rollout `mine` with this entrypoint, on a server that answers 42."""
    workspace.write(f"rollouts/mine/{name}", code)
    for file, text in files.items():
        workspace.write(f"rollouts/mine/{file}.py", text)
    experiment = {"rollout": "mine", "entrypoint": name}
    scoring = {"eval_fns": [] if "Grader" in code else ["rewards:exact"]}
    with ChatServer(reply("42")) as server:
        live = evaluated(workspace.config(server, experiment=experiment, scoring=scoring))
        assert set(asked_rows(server).values()) <= {1}
    return live


def entrypoint_error(workspace: Workspace, code: str, **files: str) -> str:
    with pytest.raises(CodeError) as caught:
        evaluate_entrypoint(workspace, code, **files)
    return str(caught.value)


def agent_error(workspace: Workspace, code: str) -> CodeError:
    """Return the error for an invalid agent "agent:rollout"."""
    workspace.agent(code)
    with pytest.raises(CodeError) as caught:
        evaluated(workspace.config(None))
    return caught.value


def test_the_context_identifies_its_run(workspace: Workspace) -> None:
    workspace.agent(
        """
        async def rollout(ctx):
            assert ctx.prompt == [{"role": "user", "content": f"row {ctx.row_index}"}]
            assert ctx.metadata == {"user_prompt": f"row {ctx.row_index}", "ground_truth": "42"}
            assert ctx.run_index in (0, 1) and ctx.max_turns == 3 and ctx.config is None
            (ctx.artifacts_dir / "note.txt").write_text("kept")
            ctx.prompt.append("spoilt"), ctx.metadata.clear()
            return [{"role": "assistant", "content": "42"}]
        """
    )
    live = evaluated(workspace.config(None, evaluation={"n": 2}, agent={"agent": "agent:rollout", "max_turns": 3}))
    assert live.kinds() == ["passed"] * 4
    assert live.run_files()["artifacts/row1-run1/note.txt"] == "kept"


def test_a_workflow_and_a_grader_may_have_configs_and_sibling_modules(workspace: Workspace) -> None:
    code = """
from dataclasses import dataclass, field
from helper import answer_of
from pytest_osmosis import AgentWorkflow, AgentWorkflowConfig, Grader

@dataclass
class Style(AgentWorkflowConfig):
    word: str = "sum"
    times: int = 1
    seen: list = field(default_factory=list)

class GraderConfig:
    def __init__(self): self.right = "42"
workflow_config, grader_config = Style(times=2), GraderConfig()

class Flow(AgentWorkflow):
    async def run(self, ctx):
        assert self.config is ctx.config and self.config is not workflow_config
        assert (ctx.config.word, ctx.config.times, workflow_config.times) == ("sum", 2, 2)
        self.config.seen.append(ctx.row_index)
        assert self.config.seen == [ctx.row_index], "each run has a copy of its own"
        await ctx.chat(ctx.prompt)

class Special(Flow):  # then the class above does not count
    pass

class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(answer_of(ctx.sample.messages) == self.config.right))
"""
    helper = "def answer_of(messages):\n    return messages[-1]['content']\n"
    live = evaluate_entrypoint(workspace, code, helper=helper)
    assert live.kinds() == ["passed"] * 2
    assert dict(live.record(0).scores) == {"reward": 1.0}


@pytest.mark.parametrize("key", ["model", "n", "stream"])
def test_ctx_chat_takes_no_key_that_the_run_itself_sets(workspace: Workspace, server: ChatServer, key: str) -> None:
    workspace.agent(f"async def rollout(ctx):\n    await ctx.chat(ctx.prompt, {key}=2)\n")

    live = evaluated(workspace.config(server))

    assert live.kinds() == ["error"] * 2
    assert str(live.record(0).error).startswith(f"TypeError: ctx.chat takes no {key}: ")
    assert server.requests == []


@pytest.mark.parametrize("name", ["types.py", "json.py", "calendar.py"])
def test_an_entrypoint_named_like_another_module_does_not_replace_it(workspace: Workspace, name: str) -> None:
    module = name.removesuffix(".py")
    check = f"import {module} as theirs\nassert 'rollouts' not in theirs.__file__, theirs\n"
    live = evaluate_entrypoint(
        workspace, WORKFLOW.replace("        reply =", f"        exec({check!r})\n        reply ="), name
    )
    assert live.kinds() == ["passed"] * 2


OTHER_FLOW = "class Other(Flow.__mro__[1]):\n    async def run(self, ctx): pass\n"
OTHER_JUDGE = "class Other(Judge.__mro__[1]):\n    async def grade(self, ctx): pass\n"
ONLY_A_GRADER = "class Grader: pass\nclass Mine(Grader):\n    async def grade(self, ctx): pass\n"
INVALID_ENTRYPOINTS = {
    "main.py: must hold one concrete AgentWorkflow, found 2: Flow, Other": WORKFLOW + OTHER_FLOW,
    "main.py: must hold one concrete Grader, found 2: Judge, Other": WORKFLOW + OTHER_JUDGE,
    "has no AgentWorkflow": ONLY_A_GRADER,
    "No module named 'no_such_module'": "import no_such_module  # Grader",
    "does not load: SystemExit: 3": "import sys\nsys.exit(3)  # Grader",
}


@pytest.mark.parametrize("message", INVALID_ENTRYPOINTS)
def test_an_invalid_entrypoint_is_a_code_error(workspace: Workspace, message: str) -> None:
    assert message in entrypoint_error(workspace, INVALID_ENTRYPOINTS[message])


def test_classes_of_an_sdk_without_contexts_are_refused(workspace: Workspace) -> None:
    workspace.write("osmosis_ai/__init__.py", "")
    workspace.write("osmosis_ai/rollout.py", "class AgentWorkflow: pass\nclass Grader: pass\n")
    code = """
from osmosis_ai.rollout import AgentWorkflow
class Flow(AgentWorkflow):
    async def run(self, ctx): pass
"""
    message = entrypoint_error(workspace, code)
    assert "Flow: derives from a class of osmosis_ai, but osmosis_ai.rollout.context cannot be imported" in message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("rollout = 3\n", "must be `async def rollout(ctx)`, a class that derives"),
        ("def rolout(ctx): pass\n", 'module "agent" has no "rollout", did you mean "rolout"?'),
        ("async def rollout(ctx):\n    yield []\n", "must be `async def rollout(ctx)`"),
        ("def rollout(ctx):\n    yield []\n", "must be `async def rollout(ctx)`"),
        (
            "import abc\nfrom pytest_osmosis import AgentWorkflow\nclass rollout(AgentWorkflow):\n"
            "    @abc.abstractmethod\n    def tools(self): ...\n",
            "is abstract: it does not define run, tools",
        ),
    ],
)
def test_an_invalid_agent_is_a_code_error(workspace: Workspace, code: str, message: str) -> None:
    error = agent_error(workspace, code)
    assert str(error).startswith("agent:rollout: ")
    assert message in str(error)


def test_code_that_does_not_load_shows_only_the_user_s_traceback(workspace: Workspace) -> None:
    error = agent_error(workspace, "def load():\n    raise RuntimeError('not today')\nload()\n")
    assert "agent:rollout: does not load: RuntimeError: not today" in str(error)
    assert "raise RuntimeError('not today')" in error.details
    assert "pytest_osmosis/host" not in error.details
    assert "importlib" not in error.details
