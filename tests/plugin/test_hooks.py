"""The hooks for other plugins and conftest.py; these tests run the examples in their docstrings."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

from pytest_osmosis.plugin import hooks as specs
from tests.plugin.workspaces import CONFIG, Workspace, wait_until
from tests.servers import ChatServer, by_row, held, reply

CUT_OFF = {"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "length"}


def example(hook: Callable[..., object]) -> str:
    """Return the conftest.py in a hook's docstring: the indented text at its end."""
    lines = (inspect.getdoc(hook) or "").splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("    "))
    return dedent("\n".join(lines[first:])) + "\n"


def lines_of(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines."""
    return [json.loads(line) for line in (workspace.root / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
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
    with ChatServer(reply("4", choices=[CUT_OFF]), reply("42")) as server:
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
import pathlib
from pytest_osmosis import Verdict

def pytest_osmosis_rollout_finished(record):
    pathlib.Path(f"heard-{record.run}").touch()

def pytest_osmosis_gate(results):
    yield Verdict("one", "holds", "as it should", 1.0)
    yield Verdict("two", "holds", "too")

def pytest_osmosis_results(results):
    pathlib.Path(f"gates-{len(results.verdicts)}").touch()
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
    assert len(list(workspace.root.glob("heard-*"))) == 3
    assert (workspace.root / "gates-4").exists()
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
        wait_until((workspace.root / "heard-row0-run0").exists, "the hook call for the first run")

        session.interrupt()

        assert session.wait() == 2, session.output
    assert (workspace.root / "gates-0").exists()
    assert not (workspace.root / "asked").exists()
    for hook, error in (("rollout_finished", "first"), ("results", "third")):
        assert f"pytest_osmosis_{hook} of conftest.py raised ZeroDivisionError: {error}" in session.output
    assert "INTERNALERROR" not in session.output
