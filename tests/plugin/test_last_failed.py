"""--lf and --ff: what failed, lay below its threshold or could not be scored, is rolled out again."""

from __future__ import annotations

import json

from tests.plugin.workspaces import Row, Workspace, read_json

CONFIG = "--osmosis-config=configs/eval/x.toml"
ROWS: list[Row] = [{}, {"score": 0.0}, {"reward": "raises"}, {}]


def ids(*rows: int) -> set[str]:
    """Ids of the first run of rows."""
    return {f"configs/eval/x.toml::x[row{row}-run0]" for row in rows}


def ran(workspace: Workspace) -> list[int]:
    """The rows that the last run rolled out."""
    return sorted(event["row"] for event in workspace.events("start"))


def test_lf_selects_what_failed_or_was_not_scored(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS, limits={"max_errors": 4})

    workspace.run(CONFIG).assert_outcomes(passed=2, failed=1, errors=1)
    assert workspace.last_failed() == ids(1, 2)
    result = workspace.run(CONFIG, "--lf")

    result.assert_outcomes(failed=1, errors=1)
    assert len(workspace.run_dirs()) == 2
    assert ran(workspace) == [1, 2]


def test_lf_selects_what_lay_below_its_threshold_where_a_gate_decides(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS, limits={"max_errors": 4}, gate={"pass_rate": ">= 0.9"})

    first = workspace.run(CONFIG)

    first.assert_outcomes(passed=2, xfailed=2, failed=1)
    assert first.ret == 1  # 0.5 to 0.75: the gate, which lastfailed does not hold
    assert workspace.last_failed() == ids(1, 2)

    second = workspace.run(CONFIG, "--lf")

    second.assert_outcomes(failed=1, errors=1, skipped=1)
    assert ran(workspace) == [1, 2]
    assert workspace.last_failed() == ids(1, 2)


def test_a_run_that_passes_leaves_lastfailed(plain_workspace: Workspace) -> None:
    workspace = plain_workspace
    workspace.eval(rows=ROWS, limits={"max_errors": 4})
    workspace.run(CONFIG)
    workspace.eval(rows=[{}, {}, {"score": 0.0}, {}])

    workspace.run(CONFIG, "--lf").assert_outcomes(passed=1, failed=1)

    assert workspace.last_failed() == ids(2)


def test_the_cache_keeps_ids_of_other_tests_alone(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS, limits={"max_errors": 0})
    workspace.write("test_python.py", "def test_python(): raise AssertionError\n")

    workspace.run(CONFIG, "test_python.py", "--osmosis-batch-size=4")

    assert workspace.last_failed() >= ids(2) | {"test_python.py::test_python"}
    assert not [nodeid for nodeid in workspace.last_failed() if "[limit" in nodeid]
    node_ids = read_json(workspace.root / ".pytest_cache" / "v" / "cache" / "nodeids")
    assert node_ids == ([] if workspace.distributed else ["test_python.py::test_python"])


def test_ff_runs_everything(plain_workspace: Workspace) -> None:
    workspace = plain_workspace
    workspace.eval(rows=ROWS, limits={"max_errors": 4})
    cache = workspace.root / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(ids(1), True)))

    result = workspace.run(CONFIG, "--ff")

    result.assert_outcomes(passed=2, failed=1, errors=1)
    assert "INTERNALERROR" not in result.stdout.str()


def test_no_cacheprovider_is_no_trouble(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS[:2])

    result = workspace.run(CONFIG, "-pno:cacheprovider")

    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    assert not (workspace.root / ".pytest_cache").exists()
