"""Commands that collect nothing: what they may have meant, and what would be collected."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace

VERL = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
OURS = "def right(solution_str, ground_truth):\n    return 1.0\n"
MIXED = "def right(ground_truth, solution_str):\n    return 1.0\n"
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


NOT_TESTED = {
    VERL: "mine.py:1: compute_score(data_source, solution_str, ground_truth, extra_info) is not tested: its first "
    "parameter must be solution_str or messages",
    MIXED: "mine.py:1: right(ground_truth, solution_str) is not tested: its first parameter must be solution_str or "
    "messages",
    OTHER: "no reward function was found in mine.py; name the file of a function whose first parameter is "
    "solution_str or messages and that takes a ground_truth, or decorate one in a test module with @osmosis_reward",
}


@pytest.mark.slow
@pytest.mark.addon
def test_reward_functions_that_are_not_tested_are_named(workspace: Workspace) -> None:
    for code, said in NOT_TESTED.items():
        workspace.write("mine.py", code)
        assert hints(workspace.run("--osmosis-lab", "mine.py", exits=5)) == [f"osmosis: {said}"]
    workspace.write("mine.py", "".join(f"def f{n}(question, ground_truth, solution_str): pass\n" for n in range(8)))
    many = hints(workspace.run("--osmosis-lab", "mine.py"))
    assert (len(many), many[-1]) == (6, "osmosis: and 3 more functions like these")


@pytest.mark.slow
def test_under_the_lab_the_files_of_a_folder_are_searched(workspace: Workspace) -> None:
    workspace.write("fns/a.py", OURS)
    workspace.write("fns/deep/b.py", MIXED)
    workspace.write("fns/.hidden/c.py", MIXED)
    workspace.write("fns/d.py", "def broken(:\n")
    workspace.write("fns/e.py", "def _private(question, ground_truth, solution_str): pass\n")

    result = workspace.run("--osmosis-lab", "fns", exits=5)

    assert [line.partition(" is not tested")[0] for line in hints(result)] == [
        "osmosis: fns/a.py:1: right(solution_str, ground_truth)",
        "osmosis: fns/deep/b.py:1: right(ground_truth, solution_str)",
    ]
    result.stdout.fnmatch_lines(["*because only files that are named are: pytest fns/a.py"])
    assert workspace.run("--osmosis-lab", "fns/a.py").ret == 0


MISSING = {
    "import osmosis_ai.cli": (
        "module osmosis_ai.cli",
        "ModuleNotFoundError: No module named 'osmosis_ai.cli'",
        "pytest-osmosis stands in for the parts of it *; see docs/how-to/osmosis-workspace.md",
    ),
    "from osmosis_ai import evaluate_rubric": (
        "evaluate_rubric in osmosis_ai",
        "ImportError: cannot import name 'evaluate_rubric' from 'osmosis_ai' *",
        "*; pytest_osmosis has evaluate_rubric and osmosis_rubric, and pip install osmosis-ai *",
    ),
    "import verifiers": (
        "module verifiers",
        "ModuleNotFoundError: No module named 'verifiers'",
        "install one that has environments *: see docs/how-to/verifiers-environments.md",
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
