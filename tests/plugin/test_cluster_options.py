"""Options and checks of evals whose hosts are to run on a cluster, where there is none. `tests/cluster` has one."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from tests.plugin.workspaces import CONFIG, Workspace

NOWHERE = {"engine": "ray", "ray": {"address": "127.0.0.1:9"}}
RECORD_MODULES = """
import json, pathlib, sys

def pytest_unconfigure():
    pathlib.Path("modules.json").write_text(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("options", "where"),
    [([], "configs/eval/x.toml"), (["--osmosis-engine=ray"], "--osmosis-engine")],
    ids=["config", "option"],
)
def test_ray_must_be_installed(workspace: Workspace, options: list[str], where: str) -> None:
    workspace.eval("x", 2, execution={} if options else NOWHERE)
    workspace.write("conftest.py", "import sys\n\nsys.modules['ray'] = None\n")

    result = workspace.run(CONFIG, *options, exits=4)

    assert [line for line in result.errlines if line] == [
        f'ERROR: {where}: [execution] engine: "ray" needs Ray, which is not installed; pip install '
        '"pytest-osmosis[ray]", or run here with --osmosis-engine=local'
    ]


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed, as in nox -s oldest")
def test_a_cluster_that_does_not_answer_ends_the_session_before_anything_is_paid(workspace: Workspace) -> None:
    workspace.eval("x", 2, execution=NOWHERE)

    result = workspace.run(CONFIG, exits=4)

    assert any("127.0.0.1:9" in line for line in result.errlines), result.errlines
    assert not workspace.run_dirs()


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--collect-only", "--osmosis-dry-run", "--osmosis-engine=local"])
def test_what_runs_nothing_there_connects_to_no_cluster(workspace: Workspace, option: str) -> None:
    workspace.eval("x", 2, execution=NOWHERE)
    workspace.write("conftest.py", RECORD_MODULES)
    workspace.write("ray.py", "raise ImportError('imported')\n")  # looks installed, wherever this runs

    assert workspace.run_process(CONFIG, option).ret == 0
    modules = json.loads((workspace.root / "modules.json").read_text())
    assert not [name for name in modules if name.split(".")[0] == "ray" or "pytest_osmosis.addons.ray" in name]
