"""The search for a config's dataset, and the problems with a missing one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_osmosis.datasets import locate
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.text.names import shown


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace, in a folder that can have other files."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"user_prompt": "2+2?"}\n')
    return path


def problem(workspace: Path, name: str | None = None, path: str | None = None) -> str:
    with pytest.raises(DatasetError) as caught:
        locate(workspace, name, path)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet"])
@pytest.mark.parametrize("folder", ["datasets", "data"])
def test_a_name_means_a_file_in_datasets_or_data(workspace: Path, folder: str, suffix: str) -> None:
    file = put(workspace / folder / f"sums{suffix}")
    put(workspace / folder / "other.jsonl")
    assert locate(workspace, "sums", None) == file


def test_name_with_a_dot_is_not_cut_at_it(workspace: Path) -> None:
    file = put(workspace / "data" / "sums.v2.jsonl")
    put(workspace / "data" / "sums.jsonl")
    assert locate(workspace, "sums.v2", None) == file


def test_name_may_be_a_file_in_the_workspace(workspace: Path) -> None:
    file = put(workspace / "examples" / "sums.csv")
    assert locate(workspace, "examples/sums.csv", None) == file


def test_path_takes_precedence_over_the_name(workspace: Path) -> None:
    put(workspace / "data" / "sums.jsonl")
    file = put(workspace / "elsewhere" / "sums.JSONL")
    assert locate(workspace, "sums", "elsewhere/sums.JSONL") == file


def test_absolute_path_can_be_outside_the_workspace(workspace: Path) -> None:
    file = put(workspace.parent / "sums.jsonl")
    assert locate(workspace, None, str(file)) == file


def test_two_files_with_one_name_are_both_reported(workspace: Path) -> None:
    put(workspace / "datasets" / "sums.csv")
    put(workspace / "data" / "sums.parquet")
    assert problem(workspace, "sums") == (
        'dataset "sums": matches 2 files, datasets/sums.csv and data/sums.parquet; '
        'set [data] path = "datasets/sums.csv" or remove the others'
    )


def test_missing_name_is_reported_with_the_search_path_and_the_available_files(workspace: Path) -> None:
    put(workspace / "datasets" / "multiply.jsonl")
    put(workspace / "data" / "divide.csv")
    put(workspace / "data" / "notes.txt")
    assert problem(workspace, "sums") == (
        f'dataset "sums": not found; looked for datasets/sums.* and data/sums.* in {workspace}; '
        "available: data/divide.csv, datasets/multiply.jsonl"
    )


def test_no_more_than_ten_files_are_listed(workspace: Path) -> None:
    for number in range(12):
        put(workspace / "data" / f"{number:02}.csv")
    assert problem(workspace, "sums").endswith("data/08.csv, data/09.csv and 2 more")


def test_workspace_without_dataset_folders_is_reported(workspace: Path) -> None:
    assert problem(workspace, "sums").endswith("; the workspace has neither datasets/ nor data/")


def test_empty_dataset_folder_is_reported(workspace: Path) -> None:
    (workspace / "data").mkdir()
    assert problem(workspace, "sums").endswith("; there is no dataset in data/")


def test_missing_path_is_reported(workspace: Path) -> None:
    put(workspace / "data" / "sums.csv")
    assert problem(workspace, path="data/sum.csv") == (
        f"data/sum.csv: no such file in {workspace}; available: data/sums.csv"
    )


def test_missing_absolute_path_is_reported(workspace: Path) -> None:
    path = str(workspace.parent / "sums.csv")
    assert problem(workspace, path=path) == f"{path}: no such file; the workspace has neither datasets/ nor data/"


def test_folder_is_rejected_as_a_dataset(workspace: Path) -> None:
    put(workspace / "data" / "sums.csv")
    assert problem(workspace, path="data") == "data: is a folder, not a file"


def test_without_name_and_path_the_error_says_what_to_set(workspace: Path) -> None:
    assert problem(workspace) == ('dataset: missing; set [experiment] dataset = "<name>" or [data] path = "<file>"')


@pytest.mark.parametrize(
    ("kind", "value", "where"),
    [
        ("path", "../sums.jsonl", "../sums.jsonl"),
        ("path", "data/../../sums.jsonl", "data/../../sums.jsonl"),
        ("path", "link/sums.jsonl", "link/sums.jsonl"),
        ("name", "../sums.jsonl", "../sums.jsonl"),
        ("name", "../../sums", "datasets/../../sums.jsonl"),
        ("name", "linked", "data/linked.jsonl"),
    ],
)
def test_file_outside_the_workspace_is_rejected(workspace: Path, kind: str, value: str, where: str) -> None:
    outside = put(workspace.parent / "sums.jsonl")
    (workspace / "datasets").mkdir()
    (workspace / "data").mkdir()
    (workspace / "data" / "linked.jsonl").symlink_to(outside)
    (workspace / "link").symlink_to(workspace.parent)
    if value == "../../sums":
        (workspace / "data").rename(workspace / "elsewhere")  # otherwise the name matches the file twice
    expected = (
        f"{where}: lies outside the workspace {workspace} (symlinks resolved); "
        f"copy it in, or use --osmosis-dataset={shown(workspace / where)}"
    )
    assert problem(workspace, **{kind: value}) == expected


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (os.mkfifo, "is a pipe, not a file"),
        (Path.mkdir, "is a folder, not a file"),
        (lambda path: path.symlink_to(path), "is a link to itself"),
        (lambda path: path.symlink_to("gone.jsonl"), "is a link to gone.jsonl, which does not exist"),
    ],
)
def test_what_is_no_file_is_named_in_its_place(workspace: Path, make: Callable[[Path], object], fault: str) -> None:
    (workspace / "data").mkdir()
    make(workspace / "data" / "sums.jsonl")
    for given in ({"name": "sums"}, {"path": "data/sums.jsonl"}):
        text = problem(workspace, **given)
        assert (
            text.startswith("data/sums.jsonl: lies outside") if fault is None else text == f"data/sums.jsonl: {fault}"
        )


def test_a_file_is_preferred_to_what_is_none(workspace: Path) -> None:
    file = put(workspace / "data" / "sums.csv")
    (workspace / "data" / "sums.jsonl").mkdir()
    assert locate(workspace, "sums", None) == file


def test_files_in_a_workspace_that_is_a_symlink_are_inside_it(workspace: Path) -> None:
    put(workspace / "data" / "sums.jsonl")
    link = workspace.parent / "link"
    link.symlink_to(workspace)
    assert locate(link, "sums", None) == link / "data" / "sums.jsonl"


def test_path_must_have_a_known_suffix(workspace: Path) -> None:
    put(workspace / "data" / "sums.txt")
    assert problem(workspace, path="data/sums.txt") == (
        'data/sums.txt: the suffix must be .jsonl, .json, .csv or .parquet, got ".txt"'
    )
