"""--osmosis-shard runs every N-th row and leaves the gates to `pytest-osmosis merge`, which makes the whole of them."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, FAIL, Workspace, read_json

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
    shard = published["shard"]
    assert (published["partial"], shard["index"], shard["of"], shard["rows"], shard["planned_rows"]) == (
        True,
        2,
        3,
        3,
        10,
    )


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


def test_a_run_of_another_shard_is_refused_and_a_shard_without_rows_has_empty_results(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {}], gate=GATE, output={"results": "out.json"})
    result = workspace.run("configs/eval/x.toml::x[row1-run0]", "--osmosis-shard=1/2", exits=4)
    result.stderr.fnmatch_lines(["*::x?row1-run0?: not found; this eval has tests like *x?row0-run0?'*"])

    empty = workspace.run(CONFIG, "--osmosis-shard=3/3", "-rs", exits=0)
    empty.assert_outcomes(skipped=2)
    empty.stdout.fnmatch_lines(["*shard 3 of 3 has none of the selected rows"])
    published = read_json(workspace.root / "out.json")
    assert (published["rows"], published["pending"], published["shard"]["rows"]) == ([], [], 0)


# -- merged ------------------------------------------------------------------------------------------------


def test_files_that_are_no_shards_of_one_eval_are_a_usage_error(workspace: Workspace) -> None:
    workspace.eval(rows=[{}] * 4, gate=GATE)
    one, two = "shards/1.json", "shards/2.json"
    for number, path in enumerate((one, two), 1):
        workspace.run(CONFIG, f"--osmosis-shard={number}/2", f"--osmosis-output={path}", exits=0)
    workspace.write("mine.json", "{}")

    twice = workspace.cli("merge", one, two, one)
    nothing = workspace.cli("merge", one, "none.json")
    onto = workspace.cli("merge", one, two, "-o", one)
    mine = workspace.cli("merge", one, two, "-o", "mine.json")
    missing = workspace.cli("merge", two, "-o", "merged.json")

    assert [result.ret for result in (twice, nothing, onto, mine, missing)] == [4, 4, 4, 4, 9]
    assert f"{one}: holds shard 1 of 2 of x again, as {one} does; name one of them" in twice.stderr.str()
    assert "none.json: no such file" in nothing.stderr.str()
    assert f"{one}: cannot be written: it is one of the files to merge; name another file" in onto.stderr.str()
    assert "mine.json: cannot be written: it exists, and pytest-osmosis did not write it" in mine.stderr.str()
    missing.stdout.fnmatch_lines(["results: merged.partial.json", "", "not measured: shard 1 of 2 is missing"])
    assert read_json(workspace.root / "merged.partial.json")["partial"] is True
