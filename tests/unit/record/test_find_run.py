"""The eval run that a name means, and the files of its eval."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import find_run, stored
from pytest_osmosis.record.run_directory import RunDirectory
from tests.unit.made import MANIFEST

OLD, NEW, OTHER = "sums-20260101T000000Z-aaaaaa", "sums-20260102T000000Z-bbbbbb", "y-20260103T000000Z-cccccc"


def made(runs: Path, name: str) -> Path:
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "eval": name.partition("-")[0]}))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in (OLD, NEW, OTHER, "sums", "renamed"):
        made(tmp_path / ".osmosis/runs", name)
    (tmp_path / "results.json").write_text(json.dumps({"provenance": {"run_dir": f"/gone/{OLD}"}}))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *((OLD, OLD), (OLD[:14], OLD), ("y", OTHER), ("sums", "sums"), ("ren", "renamed"), ("renamed", "renamed")),
        *(("configs/y.toml", OTHER), ("configs/y.toml::y[row0-run0]", OTHER), ("y~0", OTHER), ("sums~2", OLD)),
        *(("results.json", OLD), (f".osmosis/runs/{NEW}", NEW), (f".osmosis/runs/{NEW}/manifest.json", NEW)),
    ],
)
def test_a_name_means_a_run_its_eval_a_beginning_or_a_file_of_it(home: Path, name: str, found: str) -> None:
    assert find_run(home, name).path.resolve() == home / ".osmosis/runs" / found


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("sums-2026", f"matches 2 runs, {NEW}, {OLD}; type more of the name"),
        ("y~1", 'there is one of the eval "y"'),
        ("latest~9", "there are 5"),
        ("sumz", 'did you mean "sums"?'),
    ],
)
def test_a_name_of_no_run_or_of_several_is_an_error(home: Path, name: str, error: str) -> None:
    with pytest.raises(OsmosisError, match=re.escape(error)):
        find_run(home, name)


def test_the_rows_of_an_environment_are_the_dataset_of_its_run(tmp_path: Path) -> None:
    run = stored(RunDirectory(made(tmp_path, OLD)))
    assert run.dataset == Path(MANIFEST["plan"]["dataset"])
    run.directory.rows.write_text("")
    assert run.dataset == run.directory.rows
