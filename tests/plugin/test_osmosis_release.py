"""A workspace that the CLI of osmosis-ai made, and configs that it reads: `make test-osmosis` installs it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of
from tests.plugin.workspaces import Workspace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("osmosis_ai") is None, reason="osmosis_ai is not installed: make test-osmosis"
    ),
]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "from-osmosis.md"
ENTRYPOINT = "rollouts/my-rollout/main.py"
COMMAND = ("--osmosis-config=configs/eval/my-rollout.toml", "--osmosis-set=secrets.required=[]")
OFFLINE = (*COMMAND, "--osmosis-model=demo/arithmetic")
RUN = """        from osmosis_ai.rollout import get_rollout_context
        import openai
        rollout = get_rollout_context()
        async with openai.AsyncOpenAI(base_url=rollout.chat_completions_url, api_key=rollout.api_key) as client:
            reply = await client.chat.completions.create(model="any", messages=ctx.prompt)
        return [*ctx.prompt, reply.choices[0].message.model_dump(exclude_none=True)]
"""


@pytest.fixture
def template(workspace: Workspace) -> Workspace:
    """The workspace that the commands of the page make, with a dataset."""
    (commands,) = (each.text for each in blocks_of(PAGE) if each.way == "foreign" and "rollout init" in each.text)
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["sh", "-ec", commands.partition("\n")[2]]  # the first installs the SDK
    done = subprocess.run(words, cwd=workspace.root, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    os.chdir("my-workspace")
    workspace.write("my-workspace/data/rows.jsonl", '{"user_prompt": "What is 3 * 4?", "ground_truth": "12"}\n')
    return workspace


def edit(path: str, pattern: str, text: str) -> None:
    """Replace the one match of a pattern in a file of the template."""
    file = Path(path)
    source, n = re.subn(pattern, lambda _: text, file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert n == 1, pattern
    file.write_text(source, encoding="utf-8")


def test_the_template_runs_once_its_three_things_are_filled_in_but_not_in_containers(template: Workspace) -> None:
    result = template.run(*OFFLINE, exits=4)
    result.stderr.fnmatch_lines(['ERROR: dataset "<your-dataset-name>": not found; *'])
    edit("configs/eval/my-rollout.toml", r'"<your-dataset-name>"', '"rows"')
    result = template.run(*OFFLINE, exits=1)
    result.stdout.fnmatch_lines(["agent: NotImplementedError: MyAgentWorkflow.run() *"])
    edit(ENTRYPOINT, r"^        # TODO: implement agent logic\..*implemented yet\.\"\n        \)\n", RUN)
    edit(ENTRYPOINT, r"ctx\.set_reward\(0\.0\)$", 'ctx.set_reward(float("12" in ctx.sample.messages[-1]["content"]))')
    result = template.run(*OFFLINE)
    assert (result.ret, result.parseoutcomes()) == (0, {"passed": 1})
    edit(ENTRYPOINT, r"backend\.local import LocalBackend", "backend.harbor import HarborBackend")
    edit(ENTRYPOINT, r"LocalBackend\(workflow", "HarborBackend(agent")
    result = template.run(*OFFLINE, exits=4)
    result.stderr.fnmatch_lines(["*main.py: line * uses HarborBackend, which runs the workflow in a container, *"])


def test_the_sdk_has_no_backend_that_we_do_not_know() -> None:
    (folder,) = importlib.util.find_spec("osmosis_ai.rollout").submodule_search_locations  # type: ignore[union-attr,misc]
    sources = (path.read_text(encoding="utf-8") for path in Path(folder).rglob("*.py"))
    found = {name for source in sources for name in re.findall(r"^class (\w+)\(ExecutionBackend\b", source, re.M)}
    assert found == {"LocalBackend", "HarborBackend"}
