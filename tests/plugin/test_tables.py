"""The table of outcomes and the table of exit codes, row by row, as a user's pytest shows them.

Each row of one eval leads to another outcome, but for those whose time is over; it runs once for each column. Each pair
of exit codes that compete, and each exit code that no other test of sessions meets, has a session of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.plugin.test_same_under_xdist import answer
from tests.plugin.workspaces import BROKEN, FAIL, PASS, Row, Shell, Workspace, junit_cases
from tests.servers import ChatServer

PASSED, BREAKS = ("passed", "passed"), ("error", "xfail")
BROKE = "error in rewards:score: "
OUTCOMES: Mapping[str, tuple[Row, tuple[str, str], str]] = {
    "passed": ({}, PASSED, ""),
    "a function that does not decide raised": ({"aside": "raises"}, PASSED, ""),
    "not passed": ({"score": 0.25}, ("failure", "xfail"), "score 0.25 < 0.5"),
    "model": ({"user_prompt": "refuse with 400"}, BREAKS, "model: the server answered 400"),
    "agent": ({"agent": "raises"}, BREAKS, "agent: LookupError: the agent broke"),
    "provider": ({"user_prompt": "refuse with 503"}, BREAKS, "provider: the server answered 503"),
    "reward raised": ({"reward": "raises"}, BREAKS, f"{BROKE}ZeroDivisionError: the reward function broke"),
    **{f"reward gave {each}": ({"reward": each}, BREAKS, BROKE) for each in ("None", "str", "NaN", "inf")},
    "taken out": ({"grader": "removes"}, ("skip", "skip"), "taken out by its grader"),
    "timeout": ({"agent": "hangs"}, BREAKS, "timeout: took longer than 1 s (agent_workflow_timeout_s)"),
    "reward hung": ({"reward": "hangs"}, BREAKS, f"{BROKE}took longer than 2 s (grader_timeout_s)"),
}
"""The row of a run; the reports of its test, without a gate and with one; and a part of the message of that test."""
LATE = {
    "timeout": ("late-agent", {"agent_workflow_timeout_s": 1.0}),
    "reward hung": ("late-function", {"grader_timeout_s": 2.0}),
}
"""The runs whose time is over. Each has an eval of its own, as no other run may need to be done within that time."""
ROWS = {name: row for name, (row, _, _) in OUTCOMES.items() if name not in LATE}

AGENT = """
import asyncio

async def rollout(ctx):
    match ctx.metadata.get("agent"):
        case "raises":
            raise LookupError("the agent broke")
        case "hangs":
            await asyncio.sleep(600)
    await ctx.chat(ctx.prompt)
"""
REWARDS = """
import time

def score(solution_str, ground_truth, extra_info, **kwargs):
    match extra_info.get("reward"):
        case "raises":
            raise ZeroDivisionError("the reward function broke")
        case "hangs":
            time.sleep(600)
        case "None":
            return None
        case "str":
            return "1.0"
        case "NaN" | "inf" as number:
            return float(number)
    return extra_info.get("score", 1.0)

def aside(solution_str, extra_info, **kwargs):
    if extra_info.get("aside") == "raises":
        raise ValueError("it does not decide")
    return 1.0
"""
GRADER = """
from pytest_osmosis import Grader

class Removes(Grader):
    async def grade(self, ctx):
        ctx.sample.remove_sample = ctx.metadata.get("grader") == "removes"
        ctx.set_reward(1.0)
"""
NEVER_RAN = {
    "decided": "whatever the other runs give",
    "limit": "[limits] max_tokens = 1 is reached",
    "systemic": "401",
}
"""The evals whose last run never ran, and a part of the reason."""


class Session(NamedTuple):
    """A pytest run, and the files that it left. `reported` holds kind and message of each test."""

    gated: bool
    result: pytest.RunResult
    results: Mapping[str, Mapping[str, Any]]
    reported: Mapping[str, tuple[str, str]]


COLUMNS = [
    pytest.param((False, []), id="plain-no gate"),
    pytest.param((True, []), id="plain-a gate decides"),
    pytest.param((True, ["-n2"]), id="-n2-a gate decides", marks=pytest.mark.slow),
]
"""The two columns of the table of outcomes, and one of them under xdist."""


@pytest.fixture(scope="module", params=COLUMNS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Run a session with every outcome of a run."""
    gated, arguments = request.param
    workspace = Workspace(Shell(tmp_path_factory.mktemp("tables")), arguments)
    with ChatServer(answer) as server:
        make(workspace, server, gated=gated)
        names = ["systemic", "limit", *(name for name, _ in LATE.values()), "x"]
        configs = [f"--osmosis-config=configs/eval/{name}.toml" for name in names]
        result = workspace.run(*configs, "--osmosis-no-probe", "--osmosis-show-failures=all", "--junitxml=junit.xml")
        reports = reported(workspace)
        if gated:
            names.append("decided")
            decided = ("--osmosis-config=configs/eval/decided.toml", "--osmosis-stop-when-decided")
            workspace.run(*decided, "--osmosis-no-probe", "--junitxml=junit.xml")
            reports |= reported(workspace)
    return Session(gated, result, {name: workspace.results(name) for name in names}, reports)


def make(workspace: Workspace, server: ChatServer, *, gated: bool) -> None:
    """Write the evals: one with every outcome of a run, and those that end before their last run."""
    gate = {"pass_rate": ">= 0.1"} if gated else {}
    model = {"base_url": server.base_url, "max_retries": 0}
    workspace.write("agents.py", AGENT)
    workspace.write("rewards.py", REWARDS)
    workspace.write("graders.py", GRADER)
    one_by_one = {"batch_size": 1}
    workspace.eval("systemic", rows=[{"user_prompt": "refuse with 401"}] * 6, model=model, gate=gate)
    workspace.eval("limit", rows=6, model=model, gate=gate, evaluation=one_by_one, limits={"max_tokens": 1})
    fails = [{"score": 0.0}] * 12
    workspace.eval("decided", rows=fails, model=model, gate={"pass_rate": ">= 0.9"}, evaluation=one_by_one)
    tables: dict[str, Mapping[str, Any]] = {
        "agent": {"agent": "agents:rollout"},
        "scoring": {
            "eval_fns": ["rewards:score", "rewards:aside"],
            "grader": "graders:Removes",
            "decide": "rewards:score",
        },
        "model": model,
        "limits": {"max_errors": 20},
        "execution": {"hosts": 1},
        "gate": gate,
    }
    workspace.eval("x", ROWS.values(), ".", evaluation={"batch_size": 4, "pass_threshold": 0.5}, **tables)
    for outcome, (name, limit) in LATE.items():
        workspace.eval(name, [OUTCOMES[outcome][0]], ".", evaluation={"pass_threshold": 0.5, **limit}, **tables)


def reported(workspace: Workspace) -> dict[str, tuple[str, str]]:
    reports = {}
    for name, case in junit_cases(workspace.root / "junit.xml").items():
        child = next((child for child in case if child.tag not in ("properties", "system-out")), None)
        kind = "passed" if child is None else child.get("type", child.tag).removeprefix("pytest.")
        reports[name] = (kind, "" if child is None else child.attrib["message"])
    return reports


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTCOMES)
def test_a_test_reports_the_outcome_of_its_run(session: Session, name: str) -> None:
    of_eval, index = (LATE[name][0], 0) if name in LATE else ("x", list(ROWS).index(name))
    kind, message = session.reported[f"{of_eval}[row{index}-run0]"]

    _, reports, reason = OUTCOMES[name]
    assert kind == reports[session.gated]
    assert reason in message


@pytest.mark.parametrize("name", NEVER_RAN)
def test_a_run_that_never_ran_is_skipped_and_pending(session: Session, name: str) -> None:
    if name not in session.results:
        pytest.skip("without a gate nothing is decided")
    results = session.results[name]
    summary, pending = results["summary"], results["pending"]

    assert {session.reported[f"{name}[row{run['row_index']}-run0]"][0] for run in pending} == {"skip"}
    assert NEVER_RAN[name] in session.reported[f"{name}[row{pending[-1]['row_index']}-run0]"][1]
    assert NEVER_RAN[name] in pending[-1]["reason"]
    assert len(pending) == summary["pending"] == summary["selected"] - summary["total_runs"] > 0
    assert not {run["row_index"] for run in pending} & {row["row_index"] for row in results["rows"]}
    assert summary["measured"] <= summary["total_runs"]


def test_a_systemic_stop_is_reported_as_an_error(session: Session) -> None:
    kind, message = session.reported["systemic[probe]"]

    assert (kind, session.result.ret) == ("error", 9)
    assert "401" in message


# -- exit codes -------------------------------------------------------------------------------------------

ANY_ERRORS = {"max_errors": 9}
WARNS = "import warnings\n\ndef test_warns(): warnings.warn('beware')\n"
NO_WARNINGS = ("test_warns.py", "--max-warnings=0")
RAISES = "def pytest_runtest_logfinish(): raise RuntimeError('a plugin broke')\n"


class Case(NamedTuple):
    """A session: its evals, further arguments and files, and its exit code.

    `n2` is the exit code under xdist, of cases that no story of `test_same_under_xdist.py` tells.
    """

    evals: Mapping[str, Mapping[str, Any]]
    exit: int
    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    n2: int | None = None


MEASURED_NOTHING = {"rows": [BROKEN], "limits": ANY_ERRORS}
WRONG: Mapping[str, Any] = {"evaluation": {"n": 0}}
CASES: Mapping[str, Case] = {
    "1 and 0: a Python test failed, an eval passed": Case(
        {"x": {}}, 1, ("test_fails.py",), {"test_fails.py": "def test_fails(): assert 0\n"}
    ),
    "3 and 9: a plugin broke before anything was measured": Case(
        {"x": MEASURED_NOTHING}, 3, (), {"conftest.py": RAISES}, n2=3
    ),
    "4 and 9 and 1: one eval is wrong, others would fail": Case(
        {"x": MEASURED_NOTHING, "y": {"rows": [FAIL]}, "z": WRONG}, 4
    ),
    "6: too many warnings": Case({"x": {}}, 6, NO_WARNINGS, {"test_warns.py": WARNS}, n2=6),
    "9: only reward errors": Case({"x": MEASURED_NOTHING}, 9),
    "77: not measured, as the ini key says": Case({"x": MEASURED_NOTHING}, 77, ("-oosmosis_not_measured_exit=77",)),
    "9: all taken out": Case(
        {"x": {"rows": [{"grader": "removes"}], "scoring": {"eval_fns": None, "grader": "graders:Removes"}}},
        9,
        (),
        {"graders.py": GRADER},
    ),
    "9: only infrastructure": Case(
        {"x": {"model": {"base_url": "http://127.0.0.1:9/v1", "max_retries": 0}, "limits": ANY_ERRORS}},
        9,
        ("--osmosis-no-probe",),
    ),
    "9 and 0: one eval was not measured, another passed": Case({"x": MEASURED_NOTHING, "y": {}}, 9),
    "9 and 1: one eval was not measured, another failed": Case({"x": MEASURED_NOTHING, "y": {"rows": [FAIL]}}, 9),
    "9 and 6: not measured, with too many warnings": Case(
        {"x": {**MEASURED_NOTHING, "gate": {"pass_rate": ">= 0.5"}}}, 9, NO_WARNINGS, {"test_warns.py": WARNS}, n2=9
    ),
    "1 and 6: a gate does not hold, with too many warnings": Case(
        {"x": {"rows": [FAIL], "gate": {"pass_rate": ">= 0.5"}}}, 1, NO_WARNINGS, {"test_warns.py": WARNS}
    ),
    "1 and 9: -x came after the last run, and nothing was measured": Case({"x": MEASURED_NOTHING}, 9, ("-x",), n2=2),
}
"""5 and 6 never compete: pytest counts warnings only if everything passed. 0 yields to all others."""


SESSIONS = [pytest.param(case, [], case.exit, id=name) for name, case in CASES.items()]
SESSIONS += [pytest.param(case, ["-n2"], case.n2, id=f"-n2: {name}") for name, case in CASES.items() if case.n2]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "workspace", "exit_code"), SESSIONS, indirect=["workspace"])
def test_the_exit_code_is_the_one_in_the_table(workspace: Workspace, case: Case, exit_code: int) -> None:
    if "--max-warnings=0" in case.arguments and pytest.version_tuple < (9, 1):
        pytest.skip("pytest counts warnings from 9.1 on")
    for eval_name, tables in case.evals.items():
        workspace.eval(eval_name, **{"rows": [PASS], **tables})
    for path, text in case.files.items():
        workspace.write(path, text)

    result = workspace.run("--osmosis-config=configs/eval", *case.arguments)

    assert result.ret == exit_code, result.outlines
    assert ("INTERNALERROR" in result.stdout.str()) == (case.exit == 3)
    if case.exit == 4:
        assert not any(workspace.run_dirs(eval_name) for eval_name in case.evals)
