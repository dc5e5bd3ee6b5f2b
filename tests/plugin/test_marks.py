"""Marks of pytest that a conftest.py adds to tests of evals: skip, skipif and xfail mean what they mean to pytest."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, FAIL, PASS, Workspace
from tests.servers import ChatServer, reply


def marking(workspace: Workspace, **marks: str) -> None:
    """Write a conftest.py that adds these marks to the tests of rows, like `row0="pytest.mark.skip"`."""
    lines = ["import pytest", "def pytest_collection_modifyitems(items):", "    for item in items:"]
    for row, mark in marks.items():
        lines += [f"        if '[{row}-' in item.nodeid:", f"            item.add_marker({mark})"]
    workspace.write("conftest.py", "\n".join(lines) + "\n")


def test_a_test_that_will_not_run_is_not_rolled_out_and_no_gate_is_decided_without_it(workspace: Workspace) -> None:
    marking(
        workspace,
        row0="pytest.mark.skip(reason='not now')",
        row1="pytest.mark.skipif(True, reason='not here')",
        row2="pytest.mark.skipif('nonsense', reason='breaks')",
        row3="pytest.mark.xfail(run=False, reason='never')",
    )
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=[PASS] * 6, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.1"})

        result = workspace.run(CONFIG, "--osmosis-no-probe", "-rs")

        assert len(server.requests) == 2
    result.assert_outcomes(passed=2, skipped=3, xfailed=1, errors=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*gate pass_rate >= 0.1: not decided (only 2 of 6 runs selected)"])
    result.stdout.fnmatch_lines(["SKIPPED ?1?*: not now"])
    assert workspace.results()["partial"]


def test_an_eval_whose_tests_are_all_skipped_was_not_measured(workspace: Workspace) -> None:
    marking(workspace, row0="pytest.mark.skip", row1="pytest.mark.skip")
    workspace.eval(rows=2)

    result = workspace.run(CONFIG, exits=9)

    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["osmosis: x: not measured: marks keep its 2 selected tests from running"])
    assert workspace.run_dirs() == []


SETUP, CALL = (
    f"import pytest\ndef pytest_runtest_{phase}(item):\n    if 'row' in item.nodeid:\n        pytest.skip('not now')\n"
    for phase in ("setup", "call")
)
EMPTYING = (
    "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_finish(session):\n    session.items.clear()\n"
)


@pytest.mark.parametrize(
    ("hook", "options"),
    [(SETUP, ()), (CALL, ()), (SETUP, ("--osmosis-inline",)), (EMPTYING, ("--osmosis-inline",))],
    ids=["setup", "call", "setup inline", "no items inline"],
)
def test_an_eval_without_a_report_was_not_measured(workspace: Workspace, hook: str, options: tuple[str, ...]) -> None:
    workspace.write("conftest.py", hook)
    workspace.eval(rows=[PASS, FAIL])

    result = workspace.run(CONFIG, *options, exits=9)

    result.stdout.fnmatch_lines(["osmosis: x: not measured: none of its tests ran; a plugin or *"])


def test_a_gate_decides_without_a_report_of_its_runs(workspace: Workspace) -> None:
    workspace.write("conftest.py", SETUP)
    workspace.eval(rows=[PASS, FAIL], gate={"pass_rate": ">= 0.5"})

    workspace.run(CONFIG, exits=0)


def test_xfail_marks_report_what_pytest_reports(workspace: Workspace) -> None:
    known = "pytest.mark.xfail(reason='known')"
    marking(workspace, row0=known, row1=known, row2="pytest.mark.xfail(raises=KeyError)")
    workspace.ini("xfail_strict = false")
    workspace.eval(rows=[PASS, FAIL, FAIL])

    result = workspace.run(CONFIG, "-rxX", exits=1)

    result.assert_outcomes(xpassed=1, xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["XFAIL *row1-run0? - known"])
    result.stdout.fnmatch_lines(["XPASS *row0-run0? - known*"])


def test_a_strict_xfail_that_passes_fails_even_if_a_gate_decides(workspace: Workspace) -> None:
    marking(workspace, row0="pytest.mark.xfail(strict=True, reason='known')")
    workspace.eval(rows=[PASS, FAIL], gate={"pass_rate": ">= 0.1"})

    result = workspace.run(CONFIG, exits=1)

    result.assert_outcomes(failed=1, xfailed=1, passed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)* known*"])


def test_a_mark_that_changes_its_mind_after_the_collection_is_an_error(workspace: Workspace) -> None:
    marking(workspace, row0="""pytest.mark.skipif("__import__('os').environ.pop('ONCE', None)", reason='once')""")
    workspace.write("once.py", "import os\nos.environ['ONCE'] = '1'\n")
    workspace.plugins = ["-ponce"]
    workspace.eval(rows=2)

    result = workspace.run(CONFIG, exits=1)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*row0-run0 was not rolled out: a mark kept it from running when it was collected*"])


@pytest.mark.slow
def test_an_eval_runs_without_pytests_own_plugins(workspace: Workspace) -> None:
    """Without `skipping`, marks have no meaning."""
    marking(workspace, row0="pytest.mark.skip")
    workspace.eval(rows=[PASS, FAIL], gate={"pass_rate": ">= 0.9"})

    workspace.run(CONFIG, "-pno:skipping", exits=1).assert_outcomes(failed=1, passed=1, xfailed=1)
    workspace.run(CONFIG, "-pno:debugging", exits=1).assert_outcomes(failed=1, skipped=2)
