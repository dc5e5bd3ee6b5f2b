"""Commands that start an eval: only those that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.plugin.options import seems_to_ask, seems_to_run
from tests.plugin.workspaces import CONFIG, Workspace


@pytest.mark.slow
def test_osmosis_config_runs_that_eval_alone_also_beside_a_folder(workspace: Workspace) -> None:
    workspace.eval("x")
    workspace.eval("y")

    workspace.run(CONFIG, "configs", exits=0).assert_outcomes(passed=3)

    assert [len(workspace.run_dirs(name)) for name in ("x", "y")] == [1, 0]


@pytest.mark.slow
def test_osmosis_config_is_repeatable_and_takes_a_folder(workspace: Workspace) -> None:
    for name in ("x", "y", "z"):
        workspace.eval(name, rows=1)
    workspace.write("configs/eval/deeper/not_taken.toml", "")
    workspace.write("configs/eval/endpoints.toml", "")
    workspace.eval("other", rows=1, folder="second")

    result = workspace.run("--osmosis-config=configs/eval", "--osmosis-config=second/configs/eval/other.toml")

    result.assert_outcomes(passed=4)
    assert [len(workspace.run_dirs(name)) for name in ("x", "y", "z")] == [1, 1, 1]
    assert len(workspace.run_dirs("other", folder="second")) == 1


@pytest.mark.slow
def test_paths_are_relative_to_the_current_folder_and_configs_may_be_outside_the_rootdir(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.eval("x", folder="one")
    workspace.eval("y", folder="two", rows=2)
    (workspace.root / "pytest.ini").unlink()
    workspace.write("home/pytest.ini", "[pytest]\n")
    monkeypatch.chdir(workspace.root / "home")

    configs = [f"--osmosis-config=../{path}.toml" for path in ("one/configs/eval/x", "two/configs/eval/y")]
    result = workspace.run("-v", *configs, "--osmosis-output=out/")

    result.assert_outcomes(passed=5)
    ids = ["*../one/configs/eval/x.toml::x?row2-run0?*", "*../two/configs/eval/y.toml::y?row1-run0?*"]
    result.stdout.fnmatch_lines([f"rootdir: {workspace.root / 'home'}", *ids])
    assert (workspace.root / "home/out/x.json").exists()
    assert len(workspace.run_dirs("x", "one")) == len(workspace.run_dirs("y", "two")) == 1


@pytest.mark.slow
def test_a_folder_or_testpaths_never_start_an_eval(workspace: Workspace) -> None:
    workspace.eval()

    for words in (".", "configs", "configs/eval/x.toml", "tests configs", "tests ."):
        testpaths, *folders = words.split()
        workspace.ini(f"testpaths = {testpaths}")
        result = workspace.run(*folders)
        assert result.ret in (4, 5)
        assert not (workspace.root / ".osmosis").exists()
        assert not [word for word in ("osmosis: x", "row0") if word in result.stdout.str()]


@pytest.mark.journey
def test_a_folder_never_starts_an_eval_under_xdist(workspace: Workspace) -> None:
    workspace.eval()

    result = workspace.run("-n2", "configs", exits=5)

    assert not (workspace.root / ".osmosis").exists()
    assert "osmosis: x" not in result.stdout.str()


DRY, LIMIT = "--osmosis-dry-run", "--osmosis-limit=all"
SAMPLED = "sample 6 of 60 rows (10% by default"


@pytest.mark.slow
def test_the_header_says_why_a_sample_is_evaluated(workspace: Workspace) -> None:
    workspace.eval(rows=60, data={"rows": None})
    workspace.eval("y")
    workspace.eval("z", data={"rows": None})

    for typed, shown in {
        DRY: f"{SAMPLED}; --osmosis-limit=all for all)",
        "--osmosis-set=data.seed=3": f"{SAMPLED}, seed 3; --osmosis-limit=all for all)",
        "--osmosis-shard=1/2": f"{SAMPLED}; --osmosis-limit=all for all)",
        "--osmosis-smoke": f"{SAMPLED})",
        LIMIT: "all 60",
        "--osmosis-limit=6": "first 6 of 60",
    }.items():
        assert f"  dataset: data/x.jsonl, {shown}" in workspace.run(CONFIG, DRY, typed).outlines
    note = "  note: x, z: 10% of the rows by default; --osmosis-limit=all for all"
    assert note in workspace.run("--osmosis-config=configs/eval", DRY).outlines
    assert "10%" not in workspace.run("--osmosis-config=configs/eval", DRY, LIMIT).stdout.str()


STARTS = {
    CONFIG: True,
    "configs/eval/x.toml::x[row0-run0]": True,
    "--osmosis-agent=chat --osmosis-dataset=data.jsonl": True,
    "--osmosis-source=model tests": True,
    "tests -k x": False,
    **{f"{CONFIG} {word}": False for word in ("--co", DRY, "--osmosis-inline", "--trace", "--help")},
}


def test_a_host_starts_early_for_what_seems_an_eval(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {typed: seems_to_run(pytester.parseconfig(*typed.split())) for typed in STARTS} == STARTS
    monkeypatch.setenv("PYTEST_ADDOPTS", CONFIG)
    assert not seems_to_run(pytester.parseconfig("tests"))


ASKS = {
    "--osmosis-config=demo.toml": False,
    "--osmosis-config demo.toml": False,
    "demo.toml::x[row0-run0] tests": False,
    "--osmosis-config=demo.toml --osmosis-config=served.toml": True,
    "--osmosis-config=served.toml": True,
    "--osmosis-config=served.toml --osmosis-model=demo/arithmetic": False,
    "--osmosis-config=missing.toml": True,
    "--osmosis-config=folder.toml": True,
    "--osmosis-agent=chat --osmosis-model=openai/x": True,
}


def test_an_early_host_imports_a_client_unless_the_demo_model_is_named(pytester: pytest.Pytester) -> None:
    Path("demo.toml").write_text('[experiment]\nmodel_path = "demo/arithmetic"')
    Path("served.toml").write_text('[experiment]\nmodel_path = "openai/x"')
    Path("folder.toml").mkdir()
    assert {typed: seems_to_ask(pytester.parseconfig(*typed.split())) for typed in ASKS} == ASKS
