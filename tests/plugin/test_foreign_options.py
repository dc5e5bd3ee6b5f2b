"""Options of `osmosis eval` and `prime eval`, and misspelt ones of ours: the error names what to write instead."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Workspace

TAKES = "unrecognized argument; an eval takes"


REFUSED = {
    "--model demo/arithmetic": [f"--model: {TAKES} --osmosis-model"],
    "--api-key=sk-12345678": [f"--api-key: {TAKES} --osmosis-api-key-env"],
    "--num_examples=3": [f"--num_examples: {TAKES} --osmosis-num-examples"],
    "-A -t100": [f"-A: {TAKES} --osmosis-abbreviated-summary", f"-t: {TAKES} --osmosis-max-tokens"],
    "--rows=3,7": [f"--rows: {TAKES} --osmosis-set=data.rows=3,7,10-20"],
    "--osmosis-lmit=3": ["--osmosis-lmit: unrecognized argument, did you mean --osmosis-limit?"],
    "--osmosis_batch_size=3": ["--osmosis_batch_size: unrecognized argument, did you mean --osmosis-batch-size?"],
    "--osmosis-labb": ["--osmosis-labb: unrecognized argument, did you mean --osmosis-lab?"],
    "--osmosis-xyzzy": ["--osmosis-xyzzy: unrecognized argument; pytest --help lists those of pytest-osmosis"],
    "--hosted --other=1": [
        "--hosted: unrecognized argument; not offered: evals run on your machine, and requests go only to the model",
        "--other: unrecognized argument",
    ],
}


@pytest.mark.slow
def test_an_option_of_another_system_is_refused_with_its_equivalent(workspace: Workspace) -> None:
    workspace.eval()

    for typed, errors in REFUSED.items():
        result = workspace.run("configs/eval/x.toml", *typed.split(), exits=4)
        assert [line for line in result.errlines if line] == [f"ERROR: {error}" for error in errors]


def test_help_and_the_version_are_shown_and_what_else_is_typed_is_pytest_s_to_refuse(workspace: Workspace) -> None:
    assert workspace.run("--help", "--model=x").ret == 0
    for n in (1, 2):
        result = workspace.run(*["--version"] * n, "--model=x")  # each release ignores or refuses the option

        result.stdout.fnmatch_lines([f"*pytest *{pytest.__version__}*"])
        assert TAKES not in result.stderr.str()
        assert result.ret == 0 or n == 2 or pytest.version_tuple < (9,)


def test_options_of_other_plugins_keep_their_meaning(workspace: Workspace) -> None:
    workspace.write(
        "conftest.py",
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--model')\n"
        "    parser.addoption('--hosted', '-A', action='store_true')\n",
    )
    workspace.write(
        "test_x.py",
        "def test_x(pytestconfig):\n"
        "    assert (pytestconfig.getoption('--model'), pytestconfig.getoption('--hosted')) == ('a/b', True)\n",
    )

    workspace.run("test_x.py", "--model", "a/b", "-A").assert_outcomes(passed=1)
    assert workspace.run("--help", "--model=a/b").ret == 0
