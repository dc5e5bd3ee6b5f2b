"""Gates, limits and stops as tests of their own, and their exit statuses."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import BROKEN, CONFIG, FAIL, PASS, Workspace, junit_cases
from tests.servers import ChatServer, reply, slow, status


@pytest.mark.journey
def test_a_gate_that_holds_passes(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, PASS, PASS, FAIL], gate={"pass_rate": ">= 0.7"})

    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=0)

    result.assert_outcomes(passed=4, xfailed=1)
    assert not list(junit_cases(workspace.root / "junit.xml")["x[gate pass_rate >= 0.7]"])
    result.stdout.fnmatch_lines(["gate pass_rate >= 0.7: HOLDS: 0.750 (3 of 4 runs passed)"])
    (gate,) = workspace.results()["gates"]
    assert gate.pop("power") == pytest.approx(0.458, abs=1e-3)  # exactly, 0.437 of such evals have fewer than 3 passes
    assert gate == {
        "gate": "pass_rate >= 0.7",
        "state": "holds",
        "value": 0.75,
        "finding": "0.750 (3 of 4 runs passed)",
        "metric": "pass_rate",
        "function": None,
        "minimum": 0.7,
        "rule": "point",
        "compared": 0.75,
        "power_rows": 81,
    }


@pytest.mark.journey
def test_a_gate_that_does_not_hold_fails(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, FAIL], gate={"pass_rate": ">= 0.7"})

    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=1, xfailed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED configs/eval/x.toml::x?gate pass_rate >= 0.7?*"])
    assert [child.tag for child in junit_cases(workspace.root / "junit.xml")["x[gate pass_rate >= 0.7]"]] == ["failure"]


def test_gates_on_every_statistic_and_on_a_single_function(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, FAIL], evaluation={"n": 2}, gate={"rewards:score": {"mean": ">= 0.5"}})

    result = workspace.run(
        CONFIG,
        "--osmosis-gate=pass_at_2 >= 0.5",
        '--osmosis-gate=pass_rate {min = 0.4, rule = "lower"}',
        "--osmosis-gate=rewards:score pass_hat_2 >= 0.6",
        exits=1,
    )

    result.assert_outcomes(passed=4, xfailed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "gate rewards:score mean >= 0.5: HOLDS: 0.500 (4 runs)",
            "gate rewards:score pass_hat_2 >= 0.6: FAILS: 0.500 (2 rows)",
            "gate pass_at_2 >= 0.5: HOLDS: 0.500 (2 rows)",
            "gate pass_rate >= 0.4 (lower): FAILS: 0.500, lower bound * (2 of 4 runs passed)",
        ]
    )
    result.stdout.fnmatch_lines(["FAILED configs/eval/x.toml::x?gate rewards:score pass_hat_2 >= 0.6?*"])


@pytest.mark.slow
def test_two_conditions_on_one_metric_are_both_decided(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, PASS, FAIL], gate={"pass_rate": [">= 0.5", {"min": 0.6, "rule": "lower"}]})

    in_file = workspace.run(CONFIG)
    typed = workspace.run(CONFIG, "--osmosis-gate=pass_rate >= 0.9", "--osmosis-gate=pass_rate >= 0.1")

    assert in_file.ret == 1
    in_file.stdout.fnmatch_lines(["gate pass_rate >= 0.5: HOLDS: *", "gate pass_rate >= 0.6 (lower): FAILS: *"])
    assert typed.ret == 1
    typed.stdout.fnmatch_lines(
        [
            '  overridden: pass_rate = [[]">= 0.9", ">= 0.1"[]] (--osmosis-gate)',
            "gate pass_rate >= 0.9: FAILS: *",
            "gate pass_rate >= 0.1: HOLDS: *",
        ]
    )
    assert len(workspace.results()["gates"]) == 2


def test_a_mistyped_gate_on_the_command_line_is_a_usage_error(workspace: Workspace) -> None:
    workspace.eval()

    result = workspace.run(CONFIG, "--osmosis-gate=pass_rate > 0.7", "--osmosis-gate=pass_at_2 >= 0.5", exits=4)

    result.stderr.fnmatch_lines(["ERROR: --osmosis-gate gate.pass_rate: must be*"])
    result.stderr.fnmatch_lines(["ERROR: --osmosis-gate gate.pass_at_2: needs * n of at least 2, n is 1"])


@pytest.mark.journey
def test_a_gate_between_its_bounds_is_not_measured(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, FAIL, BROKEN, PASS], gate={"pass_rate": ">= 0.7"}, limits={"max_errors": 4})

    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=9)

    result.assert_outcomes(passed=2, xfailed=2, errors=1)
    result.stdout.fnmatch_lines(["ERROR configs/eval/x.toml::x?gate pass_rate >= 0.7?*"])
    assert [child.tag for child in junit_cases(workspace.root / "junit.xml")["x[gate pass_rate >= 0.7]"]] == ["error"]


def test_a_partial_selection_has_no_verdict(workspace: Workspace) -> None:
    workspace.eval(rows=[FAIL, PASS], gate={"pass_rate": ">= 0.1"})

    result = workspace.run(CONFIG, "-k", "row0-", "-rs", exits=1)

    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED ?1? configs/eval/x.toml:1: gate pass_rate >= 0.1: not decided (only 1 of 2 runs selected)"]
    )


def test_with_runxfail_single_runs_decide(workspace: Workspace) -> None:
    workspace.eval(rows=[FAIL, PASS, BROKEN], gate={"pass_rate": ">= 0.5"}, limits={"max_errors": 3})

    result = workspace.run(CONFIG, "--runxfail", exits=1)

    result.assert_outcomes(failed=1, passed=1, errors=1, skipped=1)


@pytest.mark.slow
def test_max_errors_stops_an_eval(workspace: Workspace) -> None:
    with ChatServer(slow(0.03, reply("42"))) as server:
        workspace.eval(rows=[BROKEN] * 120, limits={"max_errors": 2}, model={"base_url": server.base_url})

        result = workspace.run(CONFIG)

    assert result.ret == 9
    result.stdout.fnmatch_lines(["ERROR configs/eval/x.toml::x?limit max_errors?*"])
    results = workspace.results()
    assert (results["status"], results["stopped_by"]) == ("failed", "max_errors")
    assert 3 <= results["summary"]["total_runs"] < 120  # some 80 at most: what is rolled out and not scored is bounded
    assert all("max_errors" in run["reason"] for run in results["pending"])


def test_a_rejected_key_stops_an_eval_at_the_probe(workspace: Workspace) -> None:
    with ChatServer(status(401)) as server:
        workspace.eval(rows=4, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.5"})

        result = workspace.run(CONFIG, "-rEs")

        assert len(server.requests) == 1
    assert result.ret == 9
    result.assert_outcomes(skipped=4, errors=2)
    result.stdout.fnmatch_lines(["ERROR configs/eval/x.toml::x?probe?*", "ERROR configs/eval/x.toml::x?gate *"])
    result.stdout.fnmatch_lines(["SKIPPED ?4? configs/eval/x.toml:1: *401*"])
    assert [run["row_index"] for run in workspace.results()["pending"]] == [0, 1, 2, 3]
    assert workspace.results()["rows"] == []


def test_a_wrong_key_with_an_unusual_status_is_not_measured(workspace: Workspace) -> None:
    """As some proxies do, the server answers 400 to a wrong key, which is otherwise the model's failure."""
    refused = status(400, {"error": {"message": "Malformed API Key passed in", "code": "400"}})
    with ChatServer(refused) as server:
        workspace.eval(rows=3, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.5"})

        result = workspace.run(CONFIG)

    assert result.ret == 9
    stopped = "stopped: the test request (probe) and a run failed the same way: the server answered 400 Bad Request: "
    result.stdout.fnmatch_lines([f"{stopped}Malformed API Key passed in"])
    result.stdout.fnmatch_lines(["gate pass_rate >= 0.5: NOT MEASURED: no rollout succeeded before the eval stopped"])
    boundaries = [run["boundary"] for row in workspace.results()["rows"] for run in row["runs"]]
    assert set(boundaries) == {"provider"}


def test_an_error_that_all_runs_met_is_not_measured(workspace: Workspace) -> None:
    """The probe is too short to meet it."""
    with ChatServer(reply("hi"), status(400)) as server:
        workspace.eval(rows=3, model={"base_url": server.base_url}, gate={"pass_rate": ">= 0.5"})

        result = workspace.run(CONFIG)

        assert len(server.requests) == 4
    assert result.ret == 9
    result.stdout.fnmatch_lines(
        ["stopped: all 3 runs failed the same way: model: the server answered 400 Bad Request*"]
    )
    result.stdout.fnmatch_lines(["gate pass_rate >= 0.5: NOT MEASURED: no rollout succeeded before the eval stopped"])


@pytest.mark.slow
def test_a_key_that_is_rejected_later_stops_an_eval(workspace: Workspace) -> None:
    with ChatServer(reply("42"), reply("42"), status(401)) as server:
        workspace.eval(rows=9, model={"base_url": server.base_url})

        result = workspace.run(CONFIG, "--osmosis-no-probe")

        assert len(server.requests) <= 5
    assert result.ret == 9
    result.stdout.fnmatch_lines(["ERROR configs/eval/x.toml::x?probe?*"])
    result.stdout.no_fnmatch_line("user code also wrote to *")
    assert workspace.results()["summary"]["finished"] == 2


def test_the_exit_status_of_not_measured_can_be_set(workspace: Workspace) -> None:
    workspace.ini("osmosis_not_measured_exit = 77")
    workspace.eval(rows=[BROKEN] * 2, limits={"max_errors": 2})

    result = workspace.run(CONFIG, exits=77)

    result.assert_outcomes(errors=2)


def test_an_invalid_exit_status_is_a_usage_error(workspace: Workspace) -> None:
    workspace.ini("osmosis_not_measured_exit = 256")
    workspace.eval()

    result = workspace.run(CONFIG, exits=4)

    result.stderr.fnmatch_lines(["ERROR: osmosis_not_measured_exit: must be an exit status from 1 to 255, got '256'"])
