"""Marks of pytest that a conftest.py adds to tests of evals: skip, skipif and xfail mean what they mean to pytest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from tests.plugin.workspaces import CONFIG, FAIL, PASS, Row, Workspace
from tests.servers import ChatServer, reply


def marking(**marks: str) -> str:
    """Return a conftest.py that adds these marks to the tests of rows, like `row0="skip"`."""
    lines = ["import pytest", "def pytest_collection_modifyitems(items):", "    for item in items:"]
    for row, mark in marks.items():
        lines += [f"        if '[{row}-' in item.nodeid:", f"            item.add_marker(pytest.mark.{mark})"]
    return "\n".join(lines) + "\n"


def test_a_test_that_will_not_run_is_not_rolled_out_and_no_gate_is_decided_without_it(workspace: Workspace) -> None:
    never = {"row0": "skip(reason='not now')", "row1": "skipif(True, reason='not here')"}
    never |= {"row2": "skipif('nonsense', reason='breaks')", "row3": "xfail(run=False, reason='never')"}
    workspace.write("conftest.py", marking(**never))
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=[PASS] * 6, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.1"})

        result = workspace.run(CONFIG, "--osmosis-no-probe", "-rs", exits=1)

        assert len(server.requests) == 2
    result.assert_outcomes(passed=2, skipped=3, xfailed=1, errors=1)
    result.stdout.fnmatch_lines(["*gate pass_rate >= 0.1: not decided (only 2 of 6 runs selected)"])
    result.stdout.fnmatch_lines(["SKIPPED ?1?*: not now"])
    assert workspace.results()["partial"]


SETUP, CALL = (
    f"import pytest\ndef pytest_runtest_{phase}(item):\n    if 'row' in item.nodeid:\n        pytest.skip('not now')\n"
    for phase in ("setup", "call")
)
EMPTYING = (
    "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_finish(session):\n    session.items.clear()\n"
)
ONCE = "import os\nos.environ['ONCE'] = '1'\n"
KNOWN = "xfail(reason='known')"
NONE_RAN = "osmosis: x: not measured: none of its tests ran; a plugin or *"


class Session(NamedTuple):
    """A conftest.py, the exit status and the outcomes of tests that it leads to, and what is printed."""

    conftest: str
    exit: int
    outcomes: Mapping[str, int]
    said: Sequence[str] = ()
    words: Sequence[str] = ()
    rows: Sequence[Row] = (PASS, FAIL)
    minimum: float | None = None


SKIPPED = {"skipped": 2}
SESSIONS: Mapping[str, Session] = {
    "all are skipped": Session(
        marking(row0="skip", row1="skip"), 9, SKIPPED, ["*: marks keep its 2 selected tests from running"]
    ),
    "skipped in setup": Session(SETUP, 9, SKIPPED, [NONE_RAN]),
    "skipped in call": Session(CALL, 9, SKIPPED, [NONE_RAN]),
    "skipped in setup inline": Session(SETUP, 9, SKIPPED, [NONE_RAN], ["--osmosis-inline"]),
    "taken away inline": Session(EMPTYING, 9, {}, [NONE_RAN], ["--osmosis-inline"]),
    "a gate decides without reports": Session(SETUP, 0, {"skipped": 2, "passed": 1}, minimum=0.5),
    "xfail": Session(
        marking(row0=KNOWN, row1=KNOWN, row2="xfail(raises=KeyError)"),
        1,
        {"xpassed": 1, "xfailed": 1, "failed": 1},
        ["XFAIL *row1-run0? - known", "XPASS *row0-run0? - known*"],
        ["-rxX", "-oxfail_strict=false"],
        [PASS, FAIL, FAIL],
    ),
    "a strict xfail that passes beside a gate": Session(
        marking(row0="xfail(strict=True, reason='known')"),
        1,
        {"failed": 1, "xfailed": 1, "passed": 1},
        ["*XPASS(strict)* known*"],
        minimum=0.1,
    ),
    "a mark that changes its mind after the collection": Session(
        ONCE + marking(row0="skipif(\"__import__('os').environ.pop('ONCE', None)\", reason='once')"),
        1,
        {"failed": 1, "errors": 1},
        ["*row0-run0 was not rolled out: a mark kept it from running when it was collected*"],
    ),
    "marks without pytest's plugin for them": Session(
        marking(row0="skip"), 1, {"failed": 1, "passed": 1, "xfailed": 1}, (), ["-pno:skipping"], minimum=0.9
    ),
    "without pytest's plugin for debuggers": Session(
        marking(row0="skip"), 1, {"failed": 1, "skipped": 2}, (), ["-pno:debugging"], minimum=0.9
    ),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_marks_and_hooks_mean_what_they_mean_to_pytest(workspace: Workspace, name: str) -> None:
    session = SESSIONS[name]
    workspace.write("conftest.py", session.conftest)
    gate = {} if session.minimum is None else {"pass_rate": f">= {session.minimum}"}
    workspace.eval(rows=session.rows, gate=gate)

    result = workspace.run(CONFIG, *session.words, exits=session.exit)

    counts = result.parseoutcomes()
    assert {
        outcome: n for outcome, n in counts.items() if outcome not in ("deselected", "warnings")
    } == session.outcomes
    result.stdout.fnmatch_lines_random(session.said)
