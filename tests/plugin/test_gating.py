"""Gates, limits and stops as tests of their own; evals that stop once a gate is decided; and shards."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, FAIL, PASS, Workspace, junit_cases, read_json
from tests.servers import ChatServer, reply, status


@pytest.mark.journey
def test_a_gate_that_holds_passes(workspace: Workspace) -> None:
    workspace.eval(rows=[PASS, PASS, PASS, FAIL], gate={"pass_rate": ">= 0.7"})

    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=0)

    result.assert_outcomes(passed=4, xfailed=1)
    assert not list(junit_cases(workspace.root / "junit.xml")["x[gate pass_rate >= 0.7]"])
    result.stdout.fnmatch_lines(["gate pass_rate >= 0.7: HOLDS: 0.750 (3 of 4 runs passed)"])
    (gate,) = workspace.results()["gates"]
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
    result.stdout.fnmatch_lines(["gate pass_rate >= 0.5: NOT MEASURED: no rollout succeeded before the eval stopped"])
    boundaries = [run["boundary"] for row in workspace.results()["rows"] for run in row["runs"]]
    assert set(boundaries) == {"provider"}


EARLY = "--osmosis-stop-when-decided"


@pytest.mark.journey
def test_an_eval_whose_gate_fails_ends_early_with_the_verdict_of_the_whole(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        rows = [{"score": float(index % 4 > 0)} for index in range(40)]
        workspace.eval(rows=rows, gate={"pass_rate": ">= 0.9"}, model={"base_url": server.base_url})
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


GATE = {"pass_rate": ">= 0.9"}


@pytest.mark.journey
def test_a_shard_runs_every_nth_row_and_leaves_its_gate_to_the_merge(workspace: Workspace) -> None:
    workspace.eval(
        rows=[FAIL] * 12,
        data={"rows": "2-11"},
        evaluation={"n": 2},
        gate=GATE,
        limits={"max_cost_usd": 5},
        output={"results": "out.json"},
    )

    result = workspace.run(CONFIG, "--osmosis-shard=2/3", "-rs", exits=0)

    result.assert_outcomes(xfailed=6, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "  3 rows x 2 runs = 6 rollouts, *",
            "  shard 2 of 3: 3 of 10 rows",
            "  note: each shard has max_cost_usd for itself",
        ]
    )
    result.stdout.fnmatch_lines(["*gate pass_rate >= 0.9: not decided (shard 2 of 3: merge decides)"])
    published = read_json(workspace.root / "out.json")
    assert [row["row_index"] for row in published["rows"]] == [3, 6, 9]
    assert published["partial"] is True
    assert published["shard"].items() >= {"index": 2, "of": 3, "rows": 3, "planned_rows": 10}.items()


def test_a_shard_replaces_neither_whole_results_nor_those_of_another_shard(workspace: Workspace) -> None:
    workspace.eval(rows=[{}] * 4, output={"results": "out.json"})
    workspace.run(CONFIG)
    whole = read_json(workspace.root / "out.json")

    result = workspace.run(CONFIG, "--osmosis-shard=2/2")
    first = workspace.run(CONFIG, "--osmosis-shard=1/2", "--osmosis-output=out.shard-2-of-2.json")

    result.stdout.fnmatch_lines("""
        out.json holds the results of a whole eval run, so those of shard 2 of 2 are written to out.shard-2-of-2.json
    """)
    first.stdout.fnmatch_lines(["out.shard-2-of-2.json holds the results of shard 2 of 2, so those of shard 1 of 2 *"])
    assert read_json(workspace.root / "out.json") == whole
    assert read_json(workspace.root / "out.shard-2-of-2.json")["shard"]["index"] == 2


def test_a_shard_without_rows_has_empty_results(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {}], gate=GATE, output={"results": "out.json"})
    empty = workspace.run(CONFIG, "--osmosis-shard=3/3", "-rs", exits=0)
    empty.assert_outcomes(skipped=2)
    empty.stdout.fnmatch_lines(["*shard 3 of 3 has none of the selected rows"])
    published = read_json(workspace.root / "out.json")
    assert (published["rows"], published["pending"], published["shard"]["rows"]) == ([], [], 0)


def test_files_that_are_no_shards_of_one_eval_are_a_usage_error(workspace: Workspace) -> None:
    workspace.eval(rows=[{}] * 4, gate=GATE)
    one, two = "shards/1.json", "shards/2.json"
    for number, path in enumerate((one, two), 1):
        workspace.run(CONFIG, f"--osmosis-shard={number}/2", f"--osmosis-output={path}", exits=0)
    workspace.write("mine.json", "{}")

    twice = workspace.cli("merge", one, two, one)
    onto = workspace.cli("merge", one, two, "-o", one)
    mine = workspace.cli("merge", one, two, "-o", "mine.json")
    missing = workspace.cli("merge", two, "-o", "merged.json")

    assert [result.ret for result in (twice, onto, mine, missing)] == [4, 4, 4, 9]
    assert f"{one}: holds shard 1 of 2 of x again, as {one} does; name one of them" in twice.stderr.str()
    assert f"{one}: cannot be written: it is one of the files to merge; name another file" in onto.stderr.str()
    assert "mine.json: cannot be written: it exists, and pytest-osmosis did not write it" in mine.stderr.str()
    missing.stdout.fnmatch_lines(["results: merged.partial.json", "", "not measured: shard 1 of 2 is missing"])
    assert read_json(workspace.root / "merged.partial.json")["partial"] is True
