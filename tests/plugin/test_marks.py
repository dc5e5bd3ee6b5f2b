"""Marks of pytest that a conftest.py adds to evals, hooks for it and other plugins, and tests that stand for rows.

The tests of hooks run the examples in their docstrings.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from pytest_osmosis.plugin import hooks as specs
from pytest_osmosis.plugin.header import MANY_TESTS, number_of_tests
from pytest_osmosis.plugin.items import UNNEEDED, ItemHooks
from pytest_osmosis.record.plan import Plan, Span
from tests.plugin.workspaces import CONFIG, FAIL, PASS, Row, Workspace, junit_cases, wait_until
from tests.servers import ChatServer, by_row, held, reply


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


AGENT = """
async def rollout(ctx):
    print("rolling out", ctx.run_index)
    return [*ctx.prompt, {"role": "assistant", "content": str(ctx.run_index)}]
"""
REWARDS = """
def score(solution_str, ground_truth, extra_info, **kwargs):
    if solution_str in extra_info.get("raising", ""):
        raise ZeroDivisionError("the reward function broke")
    return float(solution_str in extra_info["passing"])
"""
ROWS: list[Row] = [{"passing": "012"}, {"passing": "0"}, {"passing": "02", "raising": "1"}, {"passing": "012"}]
"""The runs that pass, and those for which the reward function raises, out of three of each row."""


def prepare(workspace: Workspace, rows: Iterable[Row] = ROWS, **tables: Mapping[str, Any]) -> None:
    workspace.write("rewards.py", REWARDS)
    workspace.write("agent.py", AGENT)
    defaults: dict[str, Mapping[str, Any]] = {
        "execution": {"granularity": "row"},
        "evaluation": {"n": 3, "batch_size": 4},
        "agent": {"agent": "agent:rollout"},
        "limits": {"max_errors": 12},
    }
    workspace.eval("x", rows, ".", **{**defaults, **tables})


def ran(workspace: Workspace) -> list[str]:
    return sorted(f"row{event['row']}-run{event['run']}" for event in workspace.events("start"))


def runs(*rows: int) -> list[str]:
    return [f"row{row}-run{run}" for row in rows for run in range(3)]


@pytest.mark.journey
def test_the_test_of_a_row_reports_all_its_runs(workspace: Workspace) -> None:
    prepare(workspace)

    workspace.run(CONFIG, "--junitxml=junit.xml", exits=1).assert_outcomes(passed=2, failed=1, errors=1)
    assert ran(workspace) == runs(0, 1, 2, 3)
    assert sum(len(row["runs"]) for row in workspace.results()["rows"]) == 12
    cases = junit_cases(workspace.root / "junit.xml")
    failure, error = (cases["x[row1]"].findtext("failure", ""), cases["x[row2]"].findtext("error", ""))
    assert failure.startswith("2 of 3 runs did not pass\n  run1: score 0 < 1: ")
    assert failure.endswith("run it again: pytest 'configs/eval/x.toml::x[row1]'")
    assert "run1: error in rewards:score: ZeroDivisionError" in error
    properties = {name: Counter(each.attrib["name"] for each in case.iter("property")) for name, case in cases.items()}
    assert properties["x[row0]"]["osmosis.runs"] == properties["x[row1]"]["osmosis.runs_passed"] == 1
    assert workspace.last_failed() == {f"configs/eval/x.toml::x[row{row}]" for row in (1, 2)}


@pytest.mark.slow
def test_a_gate_counts_runs_even_if_tests_report_rows(workspace: Workspace) -> None:
    prepare(workspace, gate={"pass_rate": ">= 0.7"})

    for where in ((), ("--osmosis-inline",)):
        workspace.run(CONFIG, *where, exits=0).assert_outcomes(passed=3, xfailed=2)  # 9 of 12 runs passed
        assert ran(workspace) == runs(0, 1, 2, 3)
    part = workspace.run(CONFIG, "-k", "[row1]")

    part.assert_outcomes(failed=1, skipped=1)
    part.stdout.fnmatch_lines(["gate pass_rate >= 0.7: not decided (only 1 of 4 rows selected)"])
    assert ran(workspace) == runs(1)


def test_the_id_of_a_row_selects_all_its_runs(workspace: Workspace) -> None:
    prepare(workspace, data={"rows": "0"})

    result = workspace.run("configs/eval/x.toml::x[row3]", "configs/eval/x.toml::x[row0]", "-rA")

    result.assert_outcomes(passed=2)
    assert ran(workspace) == runs(0, 3)
    result.stdout.fnmatch_lines(["*Captured stdout (run1) call*", "rolling out 1"])


def test_the_header_recommends_rows_for_many_tests() -> None:
    plan = Plan("x", "/ws/x.toml", "/ws/x.jsonl", (Span(0, MANY_TESTS // 4, 1),), n=4)

    assert list(number_of_tests(plan)) == []
    [line] = number_of_tests(replace(plan, n=5))
    assert line.startswith("  note: 25,000 tests")
    assert "--osmosis-granularity=row" in line
    assert "makes 5,000, one for each row" in line
    assert list(number_of_tests(replace(plan, n=5, granularity="row"))) == ["  granularity: row, 5,000 tests"]


def example(hook: Callable[..., object]) -> str:
    """Return the conftest.py in a hook's docstring: the indented text at its end."""
    lines = (inspect.getdoc(hook) or "").splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("    "))
    return dedent("\n".join(lines[first:])) + "\n"


def lines_of(workspace: Workspace, name: str) -> list[Any]:
    return [json.loads(line) for line in (workspace.root / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
class Finished:
    """A plugin that notes the tests that have finished."""

    def __init__(self) -> None:
        self.nodeids: list[str] = []

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.nodeids.append(nodeid)


def test_hooks_of_our_tests_follow_plugins_that_come_and_go() -> None:
    manager = pytest.PytestPluginManager()
    unneeded, first, second = Finished(), Finished(), Finished()
    manager.register(unneeded, UNNEEDED[0])
    manager.register(first)
    hooks = ItemHooks(manager)

    hooks.pytest_runtest_logfinish(nodeid="a", location=("", 1, ""))
    manager.register(second)
    hooks.pytest_runtest_logfinish(nodeid="b", location=("", 1, ""))
    manager.unregister(first)
    hooks.pytest_runtest_logfinish(nodeid="c", location=("", 1, ""))

    assert (unneeded.nodeids, first.nodeids, second.nodeids) == ([], ["a", "b"], ["b", "c"])


def test_hooks_get_each_finished_rollout_and_the_results_of_each_eval_once(workspace: Workspace) -> None:
    examples = example(specs.pytest_osmosis_rollout_finished) + example(specs.pytest_osmosis_results)
    workspace.write("conftest.py", examples)
    workspace.eval("x", rows=[{}, {"score": 0.25}, {"reward": "raises"}, {"score": 0.5}], limits={"max_errors": 9})
    workspace.eval("y", rows=[{"score": 0.0}])

    workspace.run(CONFIG, "--osmosis-config=configs/eval/y.toml").assert_outcomes(passed=1, failed=3, errors=1)

    failed = sorted(lines_of(workspace, "failed.jsonl"), key=lambda line: str(line["id"]))
    ids = ("x.toml::x[row1-run0]", "x.toml::x[row3-run0]", "y.toml::y[row0-run0]")
    assert [line["id"] for line in failed] == [f"configs/eval/{id}" for id in ids]
    assert failed[0]["scores"] == {"rewards:score": 0.25}
    assert [message["role"] for message in failed[0]["messages"]] == ["user", "assistant"]
    rates = {name: workspace.results(name)["summary"]["pass_rate"] for name in ("x", "y")}
    assert rates["y"] == 0.0
    assert lines_of(workspace, "tracker.jsonl") == [
        {"eval": f"configs/eval/{name}.toml::{name}", "pass_rate": rate, "run": workspace.run_dirs(name)[-1].name}
        for name, rate in rates.items()
    ]


@pytest.mark.slow
def test_a_gate_of_a_hook_is_a_test_and_sets_the_exit_status(workspace: Workspace) -> None:
    workspace.write("conftest.py", example(specs.pytest_osmosis_gate))
    cut_off = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "length"}
    with ChatServer(reply("4", choices=[cut_off]), reply("42")) as server:
        workspace.eval(rows=2, model={"base_url": server.base_url})

        fails = workspace.run(CONFIG, "--osmosis-no-probe", exits=1)
        workspace.run(CONFIG, "--osmosis-no-probe", exits=0).assert_outcomes(passed=3)
        workspace.run(CONFIG, "--osmosis-no-probe", "-k", "row1-", exits=0)

    fails.assert_outcomes(passed=2, failed=1)
    fails.stdout.fnmatch_lines(["gate whole answers: FAILS: 1 were cut off"])
    assert workspace.results()["gates"] == []


RAISING = """
def pytest_osmosis_rollout_finished(record):
    if record.run.row == 1:
        raise ZeroDivisionError("first")

def pytest_osmosis_gate(results):
    return "yes"

def pytest_osmosis_results(path):
    assert path.exists()
    raise ZeroDivisionError("third")
"""
SOUND = """
import json
from pytest_osmosis import Verdict

def pytest_osmosis_rollout_finished(nodeid, record, messages, outcome):
    with open("heard.jsonl", "a") as file:
        print(json.dumps([nodeid, outcome, len(messages), dict(record.scores)]), file=file)

def pytest_osmosis_gate(results):
    yield Verdict("one", "holds", "as it should", 1.0)
    yield Verdict("two", "holds", "too")

def pytest_osmosis_results(eval_id, results, path):
    with open("results.jsonl", "a") as file:
        print(json.dumps([eval_id, path.exists(), len(results.verdicts)]), file=file)
"""


UNEXECUTED = """
import pytest

async def pytest_osmosis_rollout_finished(record):
    raise AssertionError

def pytest_osmosis_gate(results):
    pytest.fail("not good enough")

def pytest_osmosis_results(results):
    yield
"""


def test_hooks_that_raise_fail_or_are_not_executed_are_reported_and_affect_no_other(workspace: Workspace) -> None:
    for path, text in {"conftest.py": RAISING, "unexecuted.py": UNEXECUTED, "sound.py": SOUND}.items():
        workspace.write(path, text)
    workspace.ini("pythonpath = .")
    workspace.eval(rows=3)

    done = workspace.run(CONFIG, "-p", "unexecuted", "-p", "sound", exits=9)

    done.assert_outcomes(passed=5, errors=8)
    shown = done.stdout.str()
    for said in (
        "pytest_osmosis_rollout_finished of conftest.py raised ZeroDivisionError: first",
        'raise ZeroDivisionError("third")',
        "must return a Verdict or several, each with a state of ('holds', 'fails', 'not measured'), got 'yes'",
        "raised TypeError: is async, and hooks are not awaited; define it with a plain def (3 times in all)",
        "raised Failed: not good enough",
        "raised TypeError: contains yield, so calling it does nothing; remove the yield",
    ):
        assert said in shown
    assert "_multicall" not in shown
    assert "never awaited" not in shown
    assert len(lines_of(workspace, "heard.jsonl")) == 3
    assert lines_of(workspace, "results.jsonl") == [["configs/eval/x.toml::x", True, 4]]
    assert [gate["state"] for gate in workspace.results()["gates"]].count("not measured") == 2
    assert workspace.results()["summary"]["total_runs"] == 3


@pytest.mark.slow
def test_after_ctrl_c_finished_rollouts_are_passed_on_but_no_gate_is_called(workspace: Workspace) -> None:
    workspace.write(
        "conftest.py", RAISING.replace("row == 1", "row == 0").replace('return "yes"', "open('asked', 'w')")
    )
    workspace.write("sound.py", SOUND.replace("pytest_osmosis_gate", "unused"))
    workspace.ini("pythonpath = .")
    with ChatServer(by_row({0: [reply("42")]}, held(reply("42")))) as server:
        workspace.eval(rows=3, model={"base_url": server.base_url})
        workspace.hurry()
        session = workspace.start(CONFIG, "--osmosis-no-probe", "-p", "sound")
        wait_until(lambda: len(server.requests) == 2, "the second request")
        wait_until((workspace.root / "heard.jsonl").exists, "the hook call for the first run")

        session.interrupt()

        assert session.wait() == 2, session.output
    assert [line[2] for line in lines_of(workspace, "results.jsonl")] == [0]
    assert not (workspace.root / "asked").exists()
    for hook, error in (("rollout_finished", "first"), ("results", "third")):
        assert f"pytest_osmosis_{hook} of conftest.py raised ZeroDivisionError: {error}" in session.output
    assert "INTERNALERROR" not in session.output
