"""The workspace of a config, paths inside it, and paths in messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.config import workspace_of
from pytest_osmosis.config.document import inside
from pytest_osmosis.text.names import shown


@pytest.mark.parametrize(
    ("path", "workspace"),
    [
        ("/w/configs/eval/x.toml", "/w"),
        ("/w/configs/x.toml", "/w"),
        ("/w/configs/eval/deep/er/x.toml", "/w"),
        ("/w/configs/one/configs/eval/x.toml", "/w/configs/one"),
        ("/w/evals/x.toml", "/w/evals"),
        ("/w/configs.d/x.toml", "/w/configs.d"),
    ],
)
def test_the_workspace_is_the_parent_of_the_nearest_configs_folder_or_the_files_own_folder(
    path: str, workspace: str
) -> None:
    assert workspace_of(Path(path)) == Path(workspace)


def test_a_relative_path_is_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert workspace_of(Path("configs/eval/x.toml")) == tmp_path


@pytest.mark.parametrize(
    ("current", "path", "expected"),
    [
        ("w", "w/configs/x.toml", "configs/x.toml"),
        ("w/a", "w/configs/x.toml", "../configs/x.toml"),
        ("w/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z", "w/x.toml", None),
    ],
)
def test_paths_are_shown_relative_to_the_current_folder_if_that_is_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, current: str, path: str, expected: str | None
) -> None:
    (tmp_path / current).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / current)
    assert shown(tmp_path / path) == (expected or str(tmp_path / path))


def test_inside_follows_symlinks(tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "link"
    home.mkdir()
    link.symlink_to(home)
    (tmp_path / "out.txt").write_text("")
    (home / "in.txt").write_text("")
    (home / "link_out").symlink_to(tmp_path / "out.txt")
    (home / "link_in").symlink_to(home / "in.txt")
    for path in ("link_out", "../out.txt", "/etc/hostname", "a/../../x"):
        assert inside(home, path) is None
    assert inside(home, "link_in") == inside(link, "in.txt") == (home / "in.txt").resolve()
