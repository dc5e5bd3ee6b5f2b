"""--osmosis-shard: a job runs every N-th row, and leaves the gates to the merge."""

from __future__ import annotations

import json

import pytest

from tests.plugin.workspaces import PLAIN_AND_XDIST, Row, Workspace, read_json

CONFIG = "--osmosis-config=configs/eval/x.toml"
FAIL: Row = {"score": 0.0}
BROKEN: Row = {"reward": "raises"}
GATE = {"pass_rate": ">= 0.9"}


@PLAIN_AND_XDIST
def test_a_shard_runs_every_nth_row_and_leaves_its_gate_to_the_merge(workspace: Workspace) -> None:
    workspace.eval(
        rows=[FAIL] * 12,
        data={"rows": "2-11"},
        evaluation={"n": 2},
        gate=GATE,
        limits={"max_cost_usd": 5},
        output={"results": "out.json"},
    )

    result = workspace.run(CONFIG, "--osmosis-shard=2/3", "-rs")

    assert result.ret == 0
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
    shard = published["shard"]
    assert (published["partial"], shard["index"], shard["of"], shard["rows"], shard["planned_rows"]) == (
        True,
        2,
        3,
        3,
        10,
    )


@PLAIN_AND_XDIST
def test_a_shard_without_rows_succeeds_with_empty_results(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {}], gate=GATE, output={"results": "out.json"})

    result = workspace.run(CONFIG, "--osmosis-shard=3/3", "-rs")

    assert result.ret == 0
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*shard 3 of 3 has none of the selected rows"])
    published = read_json(workspace.root / "out.json")
    assert (published["rows"], published["pending"], published["shard"]["rows"]) == ([], [], 0)


def test_without_a_gate_a_failed_run_fails_its_shard(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=[{}, FAIL, {}, {}])

    assert plain_workspace.run(CONFIG, "--osmosis-shard=1/2").ret == 0
    assert plain_workspace.run(CONFIG, "--osmosis-shard=2/2").ret == 1


def test_a_shard_that_cannot_measure_or_has_too_many_errors_is_not_measured(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=[BROKEN, {}, BROKEN, {}, {}, {}], gate=GATE, limits={"max_errors": "50%"})

    assert plain_workspace.run(CONFIG, "--osmosis-shard=1/2").ret == 9
    assert plain_workspace.run(CONFIG, "--osmosis-shard=2/2").ret == 0


def test_of_a_shard_k_selects_some_runs_whose_own_verdicts_count(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=[{}, FAIL, {}, {}], gate=GATE, output={"results": "out.json"})

    some = plain_workspace.run(CONFIG, "--osmosis-shard=2/2", "-k", "row1")
    none = plain_workspace.run(CONFIG, "--osmosis-shard=1/2", "-k", "row1", "--osmosis-output=none.json")

    assert (some.ret, none.ret) == (1, 0)
    some.stdout.fnmatch_lines(["*not decided (only 1 of 2 runs of shard 2 of 2 selected)"])
    assert read_json(plain_workspace.root / "out.json")["shard"]["whole"] is False
    assert read_json(plain_workspace.root / "none.json")["shard"]["whole"] is False


def test_a_shard_replaces_neither_whole_results_nor_those_of_another_shard(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=[{}] * 4, output={"results": "out.json"})
    plain_workspace.run(CONFIG)
    whole = read_json(plain_workspace.root / "out.json")

    result = plain_workspace.run(CONFIG, "--osmosis-shard=2/2")
    first = plain_workspace.run(CONFIG, "--osmosis-shard=1/2", "--osmosis-output=out.shard-2-of-2.json")

    result.stdout.fnmatch_lines(
        [
            "out.json holds the results of a whole eval run, so those of shard 2 of 2 are written to "
            "out.shard-2-of-2.json"
        ]
    )
    first.stdout.fnmatch_lines(["out.shard-2-of-2.json holds the results of shard 2 of 2, so those of shard 1 of 2 *"])
    assert read_json(plain_workspace.root / "out.json") == whole
    assert read_json(plain_workspace.root / "out.shard-2-of-2.json")["shard"]["index"] == 2


def test_what_is_no_shard_or_contradicts_one_is_refused(
    plain_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_workspace.eval(rows=[{}] * 4, gate=GATE)
    form = 'must be K/N, the K-th of N shards, like 1/8 to 8/8 (N at most 10000), got "{}"'

    for text in ("0/8", "9/8", "x", "1/2/3", "1/20000"):
        result = plain_workspace.run(CONFIG, f"--osmosis-shard={text}")
        assert result.ret == 4
        assert f"--osmosis-shard: {form.format(text)}" in result.stderr.str()
    contradicting = ["--osmosis-smoke", "--osmosis-stop-when-decided", "--osmosis-update-baseline"]
    monkeypatch.setenv("PYTEST_OSMOSIS_SHARD", "1/2")
    for flag in contradicting:
        result = plain_workspace.run(CONFIG, flag)
        assert (result.ret, f"{flag}: contradicts PYTEST_OSMOSIS_SHARD=1/2" in result.stderr.str()) == (4, True)
    result = plain_workspace.run("configs/eval/x.toml::x[row1-run0]")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*row1 is not among the rows of shard 1 of 2*"])


def test_shards_of_a_dataset_are_disjoint_and_complete(plain_workspace: Workspace) -> None:
    plain_workspace.eval(rows=[{}] * 5, execution={"granularity": "row"})

    listed = [
        [line for line in plain_workspace.run(CONFIG, f"--osmosis-shard={k}/3", "--co", "-q").outlines if "::" in line]
        for k in (1, 2, 3)
    ]

    names = [line.partition("[")[2] for lines in listed for line in lines]
    assert json.dumps(sorted(names)) == json.dumps([f"row{row}]" for row in range(5)])
    assert [len(lines) for lines in listed] == [2, 2, 1]
