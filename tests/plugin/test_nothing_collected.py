"""Commands that collect nothing: what they may have meant, and what would be collected."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace

OURS = "def right(solution_str, ground_truth):\n    return 1.0\n"
OTHER = "def parse(text):\n    return text\n"


def hints(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("osmosis: ")]


@pytest.mark.slow
def test_evals_of_a_folder_are_named_with_their_command_unless_something_was_collected(workspace: Workspace) -> None:
    workspace.eval("x")
    workspace.eval("y")
    (workspace.root / "rewards.py").unlink()

    for named in (("configs/eval",), ("configs",), (".",), ()):
        assert hints(workspace.run(*named, exits=5)) == [
            "osmosis: configs/eval holds 2 evals that run only if the command names them: "
            "pytest --osmosis-config=configs/eval"
        ]
    workspace.write("test_python.py", "def test_python(): pass\n")
    assert hints(workspace.run()) == []
    assert hints(workspace.run("-k", "nothing")) == []


@pytest.mark.slow
@pytest.mark.addon
def test_nothing_is_said_where_nothing_is_ours(workspace: Workspace) -> None:
    workspace.write("app.py", OTHER)
    workspace.write("configs/eval/endpoints.toml", "")

    for arguments in ((), ("app.py",), ("configs",)):
        assert hints(workspace.run(*arguments, exits=5)) == []


@pytest.mark.addon
def test_under_the_lab_a_command_without_a_reward_function_says_what_is_one(workspace: Workspace) -> None:
    workspace.write("mine.py", OTHER)

    assert hints(workspace.run("--osmosis-lab", "mine.py", exits=5)) == [
        "osmosis: no reward function was found in mine.py; name the file of a function whose first parameter is "
        "solution_str or messages and that takes a ground_truth, or decorate one in a test module with @osmosis_reward"
    ]


MISSING = {
    "import osmosis_ai.cli": (
        "module osmosis_ai.cli",
        "ModuleNotFoundError: No module named 'osmosis_ai.cli'",
        "pytest-osmosis stands in for the parts of it *; see docs/how-to/from-osmosis.md",
    ),
    "from osmosis_ai import evaluate_rubric": (
        "evaluate_rubric in osmosis_ai",
        "ImportError: cannot import name 'evaluate_rubric' from 'osmosis_ai' *",
        "*; pytest_osmosis has evaluate_rubric and osmosis_rubric, and pip install osmosis-ai *",
    ),
    "import verifiers": (
        "module verifiers",
        "ModuleNotFoundError: No module named 'verifiers'",
        "install one that has environments *: see docs/how-to/from-verifiers.md",
    ),
}


@pytest.mark.slow
@PLAIN_AND_XDIST
def test_a_missing_library_leads_to_the_page_about_its_code(workspace: Workspace) -> None:
    modules = dict(zip("abc", MISSING, strict=True))
    workspace.eval(scoring={"eval_fns": [f"{module}:right" for module in modules]})
    for module, statement in modules.items():
        workspace.write(f"{module}.py", f"{statement}\n{OURS}")

    tested = workspace.run(*(f"{module}.py" for module in modules))
    evaluated = workspace.run("--osmosis-config=configs/eval/x.toml")

    assert (tested.ret, evaluated.ret) == (2 if not workspace.distributed else 1, 4)
    for module, statement in modules.items():
        missing, error, said = MISSING[statement]
        tested.stdout.fnmatch_lines([f"osmosis: no {missing}: {said}"])
        evaluated.stderr.fnmatch_lines([f"*{module}:right: does not load: {error}; {said}"])
