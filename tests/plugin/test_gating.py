"""Gates, limits and stops as tests of their own, and their exit statuses; evals that stop once a gate is decided."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import BROKEN, CONFIG, FAIL, PASS, Workspace, junit_cases
from tests.servers import ChatServer, reply, status

UNMEASURED = "gate pass_rate >= 0.5: NOT MEASURED: no rollout succeeded before the eval stopped"


@pytest.mark.journey
def test_a_gate_that_holds_passes(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, PASS, PASS, FAIL], gate={"pass_rate": ">= 0.7"})

    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=0)

    result.assert_outcomes(passed=4, xfailed=1)
    assert not list(junit_cases(workspace.root / "junit.xml")["x[gate pass_rate >= 0.7]"])
    result.stdout.fnmatch_lines(["gate pass_rate >= 0.7: HOLDS: 0.750 (3 of 4 runs passed)"])
    (gate,) = workspace.results()["gates"]
    assert gate["power"]["chance"] == pytest.approx(0.458, abs=1e-3)
    assert (gate["gate"], gate["state"], gate["finding"]) == ("pass_rate >= 0.7", "holds", "0.750 (3 of 4 runs passed)")
    assert gate["rule"] == {"metric": "pass_rate", "minimum": 0.7, "rule": "point", "k": None, "function": None}
    assert (gate["value"], gate["compared"], gate["power"]["rows"]) == (0.75, 0.75, 81)


@pytest.mark.journey
def test_a_gate_that_does_not_hold_fails(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, FAIL], gate={"pass_rate": ">= 0.7"})

    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=1, xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED configs/eval/x.toml::x?gate pass_rate >= 0.7?*"])
    assert [child.tag for child in junit_cases(workspace.root / "junit.xml")["x[gate pass_rate >= 0.7]"]] == ["failure"]


def test_a_wrong_key_with_an_unusual_status_is_not_measured(workspace: Workspace) -> None:
    """As some proxies do, the server answers 400 to a wrong key, which is otherwise the model's failure."""
    with ChatServer(status(400, {"error": {"message": "Malformed API Key passed in", "code": "400"}})) as server:
        workspace.eval(rows=3, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.5"})

        result = workspace.run(CONFIG, exits=9)

    stopped = "stopped: the test request and a run failed the same way: the server answered 400 Bad Request: "
    result.stdout.fnmatch_lines([f"{stopped}Malformed API Key passed in"])
    result.stdout.fnmatch_lines([UNMEASURED])
    boundaries = [run["boundary"] for row in workspace.results()["rows"] for run in row["runs"]]
    assert set(boundaries) == {"provider"}


def test_the_exit_status_of_not_measured_can_be_set(workspace: Workspace) -> None:
    workspace.eval(rows=[BROKEN] * 2, limits={"max_errors": 2})

    workspace.run(CONFIG, "-oosmosis_not_measured_exit=77", exits=77).assert_outcomes(errors=2)


EARLY = "--osmosis-stop-when-decided"
ROWS = [{"score": float(index % 4 > 0)} for index in range(40)]
"""30 of 40 pass."""


@pytest.mark.journey
def test_an_eval_whose_gate_fails_ends_early_with_the_verdict_of_the_whole(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=ROWS, gate={"pass_rate": ">= 0.9"}, model={"base_url": server.base_url})
        whole = workspace.run(CONFIG, "--osmosis-no-probe")
        assert (whole.ret, len(server.requests)) == (1, 40)
        verdict = workspace.results()["gates"][0]["state"]

        result = workspace.run(CONFIG, EARLY, "--osmosis-no-probe", "-rs", exits=1)

        n_asked = len(server.requests) - 40
    results = workspace.results()
    assert [gate["state"] for gate in results["gates"]] == [verdict] == ["fails"]
    assert n_asked < 39  # at the latest; in any order
    n_left = 40 - n_asked
    assert len(results["pending"]) == n_left
    assert (results["status"], results["stopped_by"]) == ("finished", "decided")
    reason = "gate pass_rate >= 0.9 fails whatever the other runs give"
    result.stdout.fnmatch_lines(f"""
          stops as soon as the gates are decided (not with -k, --lf or node ids)
        SKIPPED * configs/eval/x.toml:1: *{reason}
    """)
    result.stdout.fnmatch_lines([f"{n_left} of 40 runs not needed: {reason}", "stopped early: estimates cover only*"])
    assert results["stop_reason"] == results["pending"][0]["reason"]


def test_a_partial_selection_and_a_gate_that_needs_every_run_run_to_their_end(workspace: Workspace) -> None:
    workspace.eval(rows=12, gate={"pass_rate": ">= 0.1"})

    result = workspace.run(CONFIG, EARLY, "-k", "row1")

    result.assert_outcomes(passed=3, skipped=1, deselected=9)  # rows 1, 10 and 11; the gate
    result.stdout.fnmatch_lines(
        ["*(not with -k, --lf or node ids)", "did not stop early: with only some runs selected, no gate is decided"]
    )

    workspace.run(CONFIG, EARLY, "--osmosis-gate=mean >= 0.1", exits=0).stdout.fnmatch_lines(
        ["  does not stop early: gate mean >= 0.1 needs every run (its scores have no known bounds)*"]
    )
    assert workspace.results()["summary"]["total_runs"] == 12
