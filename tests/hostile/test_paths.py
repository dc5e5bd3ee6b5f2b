"""Workspaces in folders with any name that a file system allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.plugin.reward_options import split_argument
from tests.hostile.workspaces import HostileWorkspace

FOLDERS = (
    *("x::y[z].toml", "[row0-run0]", "new\nline", "@group", "-x", "~"),
    "a]b\tx {name} é日 100% 'q\" $HOME #* %s back\\slash",
)
NAMES = ("x[1]", "x::y")
INLINE = "--osmosis-inline"


def in_folders(hostile: HostileWorkspace) -> list[str]:
    """Write an eval with two rows in each folder, and return the ids of their runs."""
    for folder in FOLDERS:
        hostile.eval(rows=2, folder=folder)
    return [f"./{folder}/configs/eval/x.toml::x[row{row}-run0]" for folder in FOLDERS for row in range(2)]


def with_names(hostile: HostileWorkspace) -> list[str]:
    """Write an eval of each name with a row that passes and one that fails, and return their paths."""
    for name in NAMES:
        hostile.eval(name, rows=[{}, {"score": 0.0}])
    return [f"configs/eval/{name}.toml" for name in NAMES]


def test_evals_in_folders_with_any_name_run(hostile: HostileWorkspace) -> None:
    ids = in_folders(hostile)

    result = hostile.run(*(f"--osmosis-config={folder}/configs/eval/x.toml" for folder in FOLDERS))

    result.assert_outcomes(passed=len(ids))
    assert [folder for folder in FOLDERS if not hostile.run_dirs(folder=folder)] == []
    hostile.run(*ids, INLINE).assert_outcomes(passed=len(ids))


def test_evals_with_brackets_and_colons_in_their_own_names_run(hostile: HostileWorkspace) -> None:
    paths = with_names(hostile)

    hostile.run(*paths).assert_outcomes(passed=2, failed=2)
    ids = [f"{path}::{name}[row0-run0]" for path, name in zip(paths, NAMES, strict=True)]
    hostile.run(*ids, INLINE).assert_outcomes(passed=2)
    for path in paths:  # pytest takes "::" for the end of a path if it selects from several files
        assert hostile.run("--lf", path, INLINE).parseoutcomes()["failed"] == 1
    words = ["--osmosis-agent=chat", "--osmosis-model=demo/arithmetic", "--osmosis-eval-fn=rewards:score", INLINE]
    for name in NAMES:
        hostile.run(f"data/{name}.jsonl::{name}[row0-run0]", *words).assert_outcomes(passed=1)


@pytest.mark.parametrize("hostile", [["-n2"]], indirect=True, ids=["-n2"])
def test_workers_run_evals_with_any_name_in_folders_with_any_name(hostile: HostileWorkspace) -> None:
    ids, paths = in_folders(hostile), with_names(hostile)

    hostile.run(*ids, *paths).assert_outcomes(passed=len(ids) + 2, failed=2)


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
