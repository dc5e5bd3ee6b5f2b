"""Errors in a config, its dataset or its code: exit 4 before any request to a model."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer


@pytest.mark.journey
def test_all_problems_of_all_configs_are_listed_with_their_lines_whatever_their_kind(workspace: Workspace) -> None:
    workspace.eval(
        experiment={"dataset": "missing", "rollout": "missing", "entrypoint": "main.py"},
        evaluation={"n": 0, "batch_sizee": 3},
        model={"api_key_env": "NO_KEY", "base_url": "http://127.0.0.1:9/v1"},
        secrets={"required": ["NO_TOKEN", "no token"]},
        baseline={"results": "missing.json"},
    )
    workspace.eval("y", experiment={"model_path": "nobody/model"}, rows=[{}, {"user_prompt": None}])

    result = workspace.run(CONFIG, "configs/eval/y.toml", exits=4)

    x = (workspace.root / "configs/eval/x.toml").read_text().splitlines()
    result.stderr.fnmatch_lines_random(f"""
        ERROR: configs/eval/x.toml:{x.index("n = 0") + 1}: ?evaluation? n: must be *
        ERROR: configs/eval/x.toml:{x.index("batch_sizee = 3") + 1}: ?evaluation? batch_sizee: *batch_size*
        ERROR: configs/eval/x.toml:*: ?experiment? rollout: must be a folder in rollouts*
        ERROR: dataset "missing": not found; *
        ERROR: configs/eval/x.toml:*: ?secrets? required: each must be a name that matches*
        ERROR: secret NO_TOKEN: missing or empty in the environment; *
        ERROR: secret NO_KEY: missing or empty in the environment; *
        ERROR: configs/eval/x.toml: ?baseline? results: missing.json does not exist; *
        ERROR: *nobody*
        ERROR: data/y.jsonl:2: *user_prompt*
    """)
    assert sum(line.startswith("ERROR: ") for line in result.errlines) == 10
    assert workspace.run(CONFIG, "configs/eval/y.toml", "--osmosis-dry-run", exits=4).errlines == result.errlines
    assert "INTERNALERROR" not in result.stdout.str()
    assert not (workspace.root / ".osmosis").exists()


def test_a_faulty_key_leads_to_no_further_problem(workspace: Workspace) -> None:
    """Neither a dataset nor rows are looked for by a wrong name, and no provider by a wrong model."""
    workspace.eval(
        experiment={"model_path": 5, "dataset": 5},
        data={"rows": "x"},
        secrets={"required": []},
        rows=[{"user_prompt": 5}],
    )

    result = workspace.run(CONFIG, exits=4)

    found = sorted(line.partition("] ")[2].partition(":")[0] for line in result.errlines if line)
    assert found == ["dataset", "model_path", "rows"]


@pytest.mark.journey
def test_code_that_does_not_load_shows_the_users_traceback_once_and_leaves_no_run(workspace: Workspace) -> None:
    with ChatServer() as server:
        workspace.eval(
            agent={"agent": "agents:rollot"},
            scoring={"eval_fns": ["rewards:score", "rewards:other", "others:score", "others:scor"]},
            model={"base_url": server.base_url},
        )
        workspace.write("rewards.py", "open('tries.txt', 'a').write('x')\nimport helper\n")
        workspace.write("helper.py", "def load():\n    raise KeyError('no such thing')\n\nload()\n")
        workspace.write("others.py", "def score(solution_str, ground_truth):\n    return 1.0\n")
        workspace.write("agents.py", "async def rollout(ctx):\n    return None\n")

        result = workspace.run(CONFIG, exits=4)

        assert not server.requests
    result.stderr.fnmatch_lines("""
        ERROR: x: rewards:score: does not load: KeyError: 'no such thing'
        Traceback (most recent call last):
          File "*/rewards.py", line 2, in <module>
          File "*/helper.py", line 2, in load
        KeyError: 'no such thing'
        others:scor: module "others" has no "scor", did you mean "score"?
        agents:rollot: module "agents" has no "rollot", did you mean "rollout"?
    """)
    result.stderr.no_fnmatch_line("*rewards:other*")
    assert (workspace.root / "tries.txt").read_text() == "x", "each module once"
    assert "pytest_osmosis/" not in result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str()
    assert not workspace.run_dirs()


def test_an_unwritable_run_folder_is_reported(workspace: Workspace) -> None:
    workspace.eval("x", output={"dir": "runs"})
    workspace.eval("y", output={"dir": "taken"})
    workspace.write("taken", "a file, where a folder would be")

    result = workspace.run("--osmosis-config=configs/eval/x.toml", "--osmosis-config=configs/eval/y.toml", exits=4)

    result.stderr.fnmatch_lines(
        ["ERROR: taken: no run can be kept there: *; * name another folder in [[]output[]] dir"]
    )
    assert not list((workspace.root / "runs").iterdir())


@pytest.mark.slow
def test_a_session_that_ends_before_the_first_run_leaves_no_run(workspace: Workspace) -> None:
    workspace.eval()
    workspace.write("test_broken.py", "raise RuntimeError\n")
    workspace.run(CONFIG, "test_broken.py", exits=2).assert_outcomes(errors=1)
    assert not (workspace.root / ".osmosis").exists()

    workspace.write(
        "conftest.py",
        "import pytest\n\n\n@pytest.hookimpl(trylast=True)\n"
        "def pytest_collection_finish():\n    raise pytest.UsageError('another plugin refuses')\n",
    )
    result = workspace.run(CONFIG)

    assert "another plugin refuses" in result.stdout.str() + result.stderr.str()
    assert "pass rate" not in result.stdout.str()
    assert workspace.run_dirs() == []
