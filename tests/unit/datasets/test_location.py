"""The search for a config's dataset, and the problems with a missing one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_osmosis.datasets import locate, open_dataset
from pytest_osmosis.datasets.hub import fetched
from pytest_osmosis.errors import DatasetError
from pytest_osmosis.text.names import shown
from tests.raised import raised


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty workspace, in a folder that can have other files."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def put(workspace: Path, *files: str) -> None:
    """Write datasets, and make folders whose names end with /."""
    for file in files:
        path = workspace / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if file.endswith("/") else path.write_text('{"user_prompt": "2+2?"}\n')


@pytest.mark.parametrize(
    ("wanted", "other", "name"),
    [
        *((f"datasets/sums{suffix}", "datasets/other.jsonl", "sums") for suffix in (".jsonl", ".json", ".csv")),
        ("data/sums.parquet", "data/other.jsonl", "sums"),
        ("data/sums.v2.jsonl", "data/sums.jsonl", "sums.v2"),
        ("examples/sums.csv", "data/sums.jsonl", "examples/sums.csv"),
        ("data/sums.csv", "data/sums.jsonl/", "sums"),
    ],
)
def test_a_name_leads_to_its_file_in_datasets_or_data_or_the_workspace(
    workspace: Path, wanted: str, other: str, name: str
) -> None:
    put(workspace, wanted, other)
    assert locate(workspace, name) == workspace / wanted


TWELVE = [f"data/{number:02}.csv" for number in range(12)]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            ["datasets/sums.csv", "data/sums.parquet"],
            'dataset "sums": matches 2 files, datasets/sums.csv and data/sums.parquet; '
            'set [data] path = "datasets/sums.csv" or remove the others',
        ),
        (
            ["datasets/multiply.jsonl", "data/divide.csv", "data/notes.txt"],
            'dataset "sums": not found; looked for datasets/sums.* and data/sums.* in {workspace}; '
            "available: data/divide.csv, datasets/multiply.jsonl",
        ),
        (TWELVE, f"...available: {', '.join(TWELVE[:10])} and 2 more"),
        ([], "...; the workspace has neither datasets/ nor data/"),
        (["data/"], "...; there is no dataset in data/"),
    ],
    ids=["twice", "missing", "many files", "no folders", "empty"],
)
def test_a_dataset_that_is_not_found_is_reported_with_those_that_are_there(
    workspace: Path, files: list[str], expected: str
) -> None:
    put(workspace, *files)
    found, said = str(raised(DatasetError, locate, workspace, "sums")), expected.format(workspace=workspace)
    assert found.endswith(said.removeprefix("...")) if said.startswith("...") else found == said


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ("../sums.jsonl", "../sums.jsonl"),
        ("../../sums", "datasets/../../sums.jsonl"),
        ("linked", "data/linked.jsonl"),
    ],
)
def test_file_outside_the_workspace_is_rejected(workspace: Path, value: str, where: str) -> None:
    put(workspace.parent, "sums.jsonl")
    (workspace / "datasets").mkdir()
    if value == "linked":  # with data/, ../../sums would match the file twice
        (workspace / "data").mkdir()
        (workspace / "data" / "linked.jsonl").symlink_to(workspace.parent / "sums.jsonl")
    expected = (
        f"{where}: lies outside the workspace {workspace} (symlinks resolved); "
        f"copy it in, or use --osmosis-dataset={shown(workspace / where)}"
    )
    assert str(raised(DatasetError, locate, workspace, value)) == expected


def test_what_is_no_file_is_named_and_a_workspace_may_be_a_symlink(workspace: Path) -> None:
    put(workspace, "data/sums.jsonl/")
    with pytest.raises(DatasetError, match=r"^data/sums\.jsonl: is a folder, not a file$"):
        open_dataset(locate(workspace, "sums"), display="data/sums.jsonl")
    (workspace / "data/sums.jsonl").rmdir()
    put(workspace, "data/sums.jsonl")
    link = workspace.parent / "link"
    link.symlink_to(workspace)
    assert locate(link, "sums") == link / "data" / "sums.jsonl"


@pytest.mark.parametrize("address", ["hf://models/a/b", "hf://datasets/a", "hf://datasets/a/b@", "hf://datasets/a/b/"])
def test_an_address_on_the_hub_has_an_owner_and_a_name(address: str) -> None:
    with pytest.raises(DatasetError, match=f"^{re.escape(address)}: must be hf://datasets/OWNER/NAME, and perhaps"):
        fetched(address)
