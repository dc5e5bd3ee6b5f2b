"""Workspaces in folders with any name that a file system allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.plugin.reward_tests.reward_options import split_argument
from tests.hostile.workspaces import PLAIN_AND_XDIST, HostileWorkspace

NAMES = (
    *("a[b]", "[row0-run0]", "a]b", "a b", "a::b", "x::y[z].toml", "100%", "#x", "{name}", "é日", "new\nline"),
    *("tab\tx", "it's", 'q"uote', "back\\slash", "*", "-x", "@group", "~", "$HOME", "%s"),
)


TOGETHER = ("x::y[z].toml", "new\nline", "@group", "-x", "~", "a]b\tx {name} é日 100% 'q\" $HOME #* %s back\\slash")
"""The parts of NAMES in fewer folders."""


def test_evals_in_folders_with_any_name_run(hostile: HostileWorkspace) -> None:
    for name in NAMES:
        hostile.eval(rows=2, folder=name)

    result = hostile.run(*(f"--osmosis-config={name}/configs/eval/x.toml" for name in NAMES), "--osmosis-inline")

    result.assert_outcomes(passed=2 * len(NAMES))
    assert [name for name in NAMES if not hostile.run_dirs(folder=name)] == []

    ids = [f"./{name}/configs/eval/x.toml::x[row1-run0]" for name in NAMES]
    hostile.run(*ids, "--osmosis-inline").assert_outcomes(passed=len(NAMES))


@PLAIN_AND_XDIST
def test_hosts_and_workers_run_evals_in_folders_with_any_name(hostile: HostileWorkspace) -> None:
    for name in TOGETHER:
        hostile.eval(rows=2, folder=name)

    ids = [f"./{name}/configs/eval/x.toml::x[row{row}-run0]" for name in TOGETHER for row in range(2)]
    hostile.run(*ids).assert_outcomes(passed=2 * len(TOGETHER))


@PLAIN_AND_XDIST
def test_evals_with_brackets_and_colons_in_their_own_names_run(hostile: HostileWorkspace) -> None:
    names = ("x[1]", "x::y")
    for name in names:
        hostile.eval(name, rows=[{}, {"score": 0.0}])
    paths = [f"configs/eval/{name}.toml" for name in names]

    hostile.run(*paths).assert_outcomes(passed=2, failed=2)
    hostile.run(*(f"configs/eval/{name}.toml::{name}[row0-run0]" for name in names)).assert_outcomes(passed=2)
    for path in paths:  # pytest takes "::" for the end of a path if it selects from several files
        assert hostile.run("--lf", path).parseoutcomes()["failed"] == 1
    words = ["--osmosis-agent=chat", "--osmosis-model=demo/arithmetic", "--osmosis-eval-fn=rewards:score"]
    for name in names:
        hostile.run(f"data/{name}.jsonl::{name}[row0-run0]", *words).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arg", "expected"),
    [
        ("x.toml", ("x.toml", "")),
        ("x.toml::x[row0-run0]", ("x.toml", "::x[row0-run0]")),
        ("a::b/x.toml::x[row0-run0]", ("a::b/x.toml", "::x[row0-run0]")),
        ("a::b/x.toml", ("a::b/x.toml", "")),
        ("a::b", ("a::b", "")),
        ("none.toml::x[row0::run0]", ("none.toml", "::x[row0::run0]")),
        ("none.toml", ("none.toml", "")),
    ],
)
def test_the_path_in_an_argument_is_the_one_that_exists(tmp_path: Path, arg: str, expected: tuple[str, str]) -> None:
    for path in ("x.toml", "a::b/x.toml"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    assert split_argument(tmp_path, arg) == expected
