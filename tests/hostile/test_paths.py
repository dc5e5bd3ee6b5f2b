"""Workspaces in folders with any name that a file system allows."""

from __future__ import annotations

import pytest

from tests.hostile.workspaces import HostileWorkspace

FOLDERS = ("new\nline", "@group", "-x", "~", "a]b\tx {name} é日 100% 'q\" $HOME #* %s back\\slash")
NAMES = ("x[1]", "x::y")
INLINE = "--osmosis-inline"


def in_folders(hostile: HostileWorkspace) -> list[str]:
    """Write an eval with two rows in each folder, and return the ids of their runs."""
    for folder in FOLDERS:
        hostile.eval(rows=2, folder=folder)
    return [f"./{folder}/configs/eval/x.toml::x[row{row}-run0]" for folder in FOLDERS for row in range(2)]


def test_evals_in_folders_with_any_name_run(hostile: HostileWorkspace) -> None:
    ids = in_folders(hostile)

    result = hostile.run(*(f"--osmosis-config={folder}/configs/eval/x.toml" for folder in FOLDERS))

    result.assert_outcomes(passed=len(ids))
    assert [folder for folder in FOLDERS if not hostile.run_dirs(folder=folder)] == []
    hostile.run(*ids, INLINE).assert_outcomes(passed=len(ids))


def test_a_path_that_pytest_takes_for_the_name_of_a_test_is_refused(hostile: HostileWorkspace) -> None:
    for name in NAMES:
        hostile.eval(name)

    result = hostile.run(*(f"--osmosis-config=configs/eval/{name}.toml" for name in NAMES))

    assert result.ret == 4
    text = 'its path names its tests, and holds "[", "::", or characters that control terminals; rename it'
    assert [line for line in result.errlines if line] == [f"ERROR: configs/eval/{name}.toml: {text}" for name in NAMES]


@pytest.mark.parametrize("hostile", [["-n2"]], indirect=True, ids=["-n2"])
def test_workers_run_evals_in_folders_with_any_name(hostile: HostileWorkspace) -> None:
    ids = in_folders(hostile)

    hostile.run(*ids).assert_outcomes(passed=len(ids))
