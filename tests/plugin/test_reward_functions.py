"""Tests of reward functions: their collection, names and reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from tests.plugin.workspaces import Workspace

REWARDS = """
from __future__ import annotations

import re

from pytest_osmosis import osmosis_reward

def helper(text):
    return re.sub(" ", "", text)

@osmosis_reward(cases=[("4 2", "42", 1.0), ("41", "42", 1.0)])
def spaces(solution_str: str, ground_truth: str, extra_info: dict | None = None) -> float:
    return float(helper(solution_str) == (ground_truth or ""))

@osmosis_reward
async def exact(solution_str: str, ground_truth: str, extra_info: dict | None = None) -> float:
    return float(solution_str == ground_truth)
"""
PLAIN = """
def exact(solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)

def extract(solution_str):
    return solution_str

def _private(solution_str, ground_truth):
    return 0.0

def test_of_another_kind():
    raise AssertionError
"""
CASES = """
[[exact]]
id = "same"
solution_str = "42"
ground_truth = "42"
expect = 1.0
"""
IDS = [
    "rewards.py::spaces[contract]",
    "rewards.py::spaces[cases-0]",
    "rewards.py::spaces[cases-1]",
    "rewards.py::exact[contract]",
]


def collected(workspace: Workspace, *arguments: str) -> list[str]:
    result = workspace.run("--co", "-q", *arguments)
    return [line for line in result.outlines if "::" in line]


def outcomes(workspace: Workspace, *arguments: str) -> dict[str, int]:
    """Return the number of tests by outcome, without warnings."""
    counts = workspace.run(*arguments).parseoutcomes()
    return {outcome: count for outcome, count in counts.items() if not outcome.startswith("warning")}


@pytest.mark.journey
def test_reward_functions_of_a_file_are_tests(workspace: Workspace) -> None:
    workspace.write("rewards.py", REWARDS)
    result = workspace.run("rewards.py", "-v", "--json-report", "--json-report-file=report.json")
    result.assert_outcomes(passed=3, failed=1)
    printed = result.stdout.str()
    assert "spaces(solution_str='41', ground_truth='42') = 0.0, must be 1" in printed
    assert "case: rewards.py:11" in printed
    assert "RewardWarning" not in printed
    report = json.loads((workspace.root / "report.json").read_text(encoding="utf-8"))
    lines = {test["nodeid"]: test["lineno"] for test in report["tests"]}
    assert lines == {IDS[0]: 10, IDS[1]: 10, IDS[2]: 10, IDS[3]: 14}
    assert [REWARDS.splitlines()[line][:15] for line in (10, 14)] == ["@osmosis_reward"] * 2
    assert workspace.last_failed() == {IDS[2]}
    assert outcomes(workspace, "rewards.py", "--lf") == {"failed": 1, "deselected": 3}


def test_reward_functions_are_collected_only_where_they_are_defined(workspace: Workspace) -> None:
    workspace.ini("osmosis_rewards = rewards.py more/*.py")
    workspace.write("rewards.py", REWARDS)
    workspace.write("more/plain.py", PLAIN)
    workspace.write("more/plain.cases.toml", CASES)
    workspace.write("test_a.py", REWARDS + "\nfrom rewards import spaces as imported\nalias = exact\n")

    ids = collected(workspace)

    in_test_module = [nodeid.replace("rewards.py", "test_a.py") for nodeid in IDS]
    in_plain = ["more/plain.py::exact[contract]", "more/plain.py::exact[cases-same]"]
    assert ids == [*in_plain, *IDS, *in_test_module]


def test_a_plain_run_collects_only_files_that_are_named_besides_testpaths(workspace: Workspace) -> None:
    workspace.write("rewards.py", PLAIN)
    workspace.write("graded.py", REWARDS)
    workspace.write("tests/test_a.py", "import graded, rewards\nfrom rewards import exact\ndef test_a(): pass\n")
    workspace.ini("pythonpath = .")
    assert collected(workspace) == ["tests/test_a.py::test_a"]

    workspace.ini("pythonpath = .", "osmosis_rewards = rewards.py", "testpaths = tests")
    assert outcomes(workspace) == {"passed": 2}


@pytest.mark.slow
def test_node_ids_keywords_and_markers_select(workspace: Workspace) -> None:
    workspace.write("rewards.py", REWARDS)
    workspace.write("test_a.py", "def test_a(): pass\n")

    assert collected(workspace, "rewards.py::spaces[cases-1]") == IDS[2:3]
    assert collected(workspace, "rewards.py::spaces") == IDS[:3]
    assert collected(workspace, "rewards.py", "-k", "exact and contract") == IDS[3:]
    assert collected(workspace, "rewards.py", "test_a.py", "-mosmosis_reward", "--strict-markers") == IDS
    assert collected(workspace, "rewards.py", "test_a.py", "-mnot osmosis") == ["test_a.py::test_a"]


NAN = """
from pytest_osmosis import osmosis_reward

@osmosis_reward(allow=["{}"])
def exact(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return float("nan")
"""
NOTED = REWARDS.replace('(ground_truth or "")', "ground_truth.strip()")
RAISES = REWARDS.replace("(ground_truth or", "(float(solution_str) and ground_truth or")
STRICT = "-Werror::pytest_osmosis.RewardWarning"
TESTED: Mapping[str, tuple[str, Sequence[str], Mapping[str, int], Sequence[str]]] = {
    "a traceback begins in the function": (
        RAISES,
        ["-k", "cases-0"],
        {"failed": 1, "deselected": 3},
        ["E *ValueError: could not convert string to float: '4 2'", "*spaces(solution_str='4 2', *) must be 1"],
    ),
    "a note is a warning": (
        NOTED,
        ["-k", "spaces and contract"],
        {"passed": 1, "deselected": 3, "warning": 1},
        ["*RewardWarning: spaces: it breaks with ground_truth=None (no-ground-truth)"],
    ),
    "or an error": (NOTED, ["-k", "spaces and contract", STRICT], {"failed": 1, "deselected": 3}, []),
    "a finding": (
        NAN.format("other"),
        [],
        {"failed": 1},
        ["it does not return a finite number (not-a-number)", "  exact(solution_str='42', *got nan"],
    ),
    "a finding that is allowed": (NAN.format("not-a-number"), [], {"passed": 1}, []),
    "a file without a reward function": (
        "def helper(text): ...\n",
        ["-oosmosis_rewards=rewards.py"],
        {"error": 1},
        ["*rewards.py: holds no reward function; decorate one with @osmosis_reward, or *"],
    ),
}


@pytest.mark.parametrize("name", TESTED)
def test_what_a_function_does_decides_its_test(workspace: Workspace, name: str) -> None:
    text, words, expected, lines = TESTED[name]
    workspace.write("rewards.py", text)
    named = [] if any("osmosis_rewards" in word for word in words) else ["rewards.py"]

    result = workspace.run(*named, *words)

    counts = result.parseoutcomes()
    assert {outcome.removesuffix("s"): n for outcome, n in counts.items()} == expected
    result.stdout.fnmatch_lines(lines)
    assert not [word for word in ("in invoke", "calls.py") if word in result.stdout.str()], "only frames of the user"


HIDDEN = """
from pytest_osmosis import osmosis_reward

class Judge:
    @osmosis_reward
    def __call__(self, solution_str, ground_truth):
        return 1.0

def made(scale):
    @osmosis_reward
    def score(messages, ground_truth):
        return float("nan")
    return score

BY_NAME = {"made": made(1)}

@osmosis_reward
def twice(messages, ground_truth):
    return float("nan")

@osmosis_reward
def twice(messages, ground_truth):
    return 1.0

short = osmosis_reward(lambda messages, ground_truth: 1.0)
"""


def test_decorated_functions_that_would_not_be_tested_are_collection_errors(workspace: Workspace) -> None:
    workspace.write("rewards.py", HIDDEN)

    result = workspace.run("rewards.py", exits=pytest.ExitCode.INTERRUPTED)

    fix = "is decorated with @osmosis_reward and would not be tested: a reward function needs a name of its own*"
    result.stdout.fnmatch_lines_random(f"""
        *rewards.py:5: Judge.__call__ {fix}
        *rewards.py:10: made.<locals>.score {fix}
        *rewards.py:17: twice {fix}
    """)
    assert not [line for line in ("rewards.py:21", "rewards.py:25") if line in result.stdout.str()]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["test_a.py"]])
def test_an_ini_key_without_a_reward_function_is_a_usage_error(workspace: Workspace, arguments: list[str]) -> None:
    workspace.ini("osmosis_rewards = rewards.py rewrds.py more/*.py ../else.py /else/where.py folder notes.txt")
    for file in ("rewards.py", "test_a.py"):
        workspace.write(file, PLAIN)
    workspace.write("folder/rewards.py", PLAIN)
    workspace.write("notes.txt", "")

    result = workspace.run(*arguments, exits=4)

    for pattern in ("rewrds.py", "more/[*].py", "../else.py", "/else/where.py", "folder", "notes.txt"):
        result.stderr.fnmatch_lines([f"ERROR: ini osmosis_rewards: {pattern}: must be a Python file, or a pattern *"])
    assert "osmosis_rewards: rewards.py" not in result.stderr.str()
    assert workspace.run("--help").ret == 0


LEAKY = """
from pytest_osmosis import osmosis_reward

@osmosis_reward
def contained(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return float(bool(ground_truth) and ground_truth in solution_str)
"""


@pytest.mark.slow
def test_option_and_ini_turn_the_lab_on_which_leaves_no_files_behind(workspace: Workspace) -> None:
    workspace.write("rewards.py", LEAKY)
    probes = ["determinism", "range", "robustness", "speed", "leaks"]
    in_lab = ["rewards.py::contained[contract]", *(f"rewards.py::contained[lab-{probe}]" for probe in probes)]

    assert collected(workspace, "rewards.py") == in_lab[:1]
    assert collected(workspace, "rewards.py", "--osmosis-lab") == in_lab
    workspace.ini("osmosis_lab = true")
    assert collected(workspace, "rewards.py") == in_lab
    ran = workspace.run("rewards.py", "-k", "robustness or range", "-pno:cacheprovider")
    ran.assert_outcomes(passed=2, deselected=4)
    left = {path.name for path in workspace.root.iterdir()} - {"__pycache__", ".pytest_cache"}
    assert left == {"pytest.ini", "rewards.py"}


@pytest.mark.slow
@pytest.mark.parametrize("origin", ["--osmosis-lab", "ini osmosis_lab"])
def test_the_lab_without_its_libraries_is_refused_with_an_install_hint(workspace: Workspace, origin: str) -> None:
    workspace.write("rewards.py", LEAKY)
    workspace.write("conftest.py", "import sys\nfor each in ('psutil', 'time_machine'): sys.modules[each] = None\n")
    lab = "--osmosis-lab" if origin == "--osmosis-lab" else "-oosmosis_lab=true"
    hint = f'*{origin}: needs psutil, time_machine: pip install "pytest-osmosis[[]lab]"*'
    workspace.run("rewards.py", lab, exits=pytest.ExitCode.USAGE_ERROR).stderr.fnmatch_lines([hint])
    workspace.run("rewards.py").assert_outcomes(passed=1)
