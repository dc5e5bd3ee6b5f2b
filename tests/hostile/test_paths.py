"""Workspaces in folders with any name that a file system allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.plugin.reward_tests.reward_options import split_argument
from tests.hostile.workspaces import HostileWorkspace
from tests.plugin.workspaces import PLAIN_AND_XDIST

NAMES = (
    *("a[b]", "[row0-run0]", "a]b", "a b", "a::b", "x::y[z].toml", "100%", "#x", "{name}", "é日", "new\nline"),
    *("tab\tx", "it's", 'q"uote', "back\\slash", "*", "-x", "@group", "~", "$HOME", "%s"),
)


@PLAIN_AND_XDIST
@pytest.mark.parametrize("part", range(3))
def test_evals_in_folders_with_any_name_run(hostile: HostileWorkspace, part: int) -> None:
    names = NAMES[part::3]  # each eval has a host, and together they take memory
    for name in names:
        hostile.eval(rows=2, folder=name)

    result = hostile.run(*(f"--osmosis-config={name}/configs/eval/x.toml" for name in names))

    result.assert_outcomes(passed=2 * len(names))
    assert all(hostile.run_dirs(folder=name) for name in names)

    ids = [f"./{name}/configs/eval/x.toml::x[row1-run0]" for name in names]
    hostile.run(*ids).assert_outcomes(passed=len(names))


@PLAIN_AND_XDIST
def test_an_eval_with_brackets_and_colons_in_its_own_name_runs(hostile: HostileWorkspace) -> None:
    for name in ("x[1]", "x::y"):
        hostile.eval(name, rows=[{}, {"score": 0.0}])
        path = f"configs/eval/{name}.toml"

        hostile.run(path).assert_outcomes(passed=1, failed=1)
        hostile.run(f"{path}::{name}[row0-run0]").assert_outcomes(passed=1)
        assert hostile.run("--lf", path).parseoutcomes()["failed"] == 1
        words = ["--osmosis-agent=chat", "--osmosis-model=demo/arithmetic", "--osmosis-eval-fn=rewards:score"]
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
