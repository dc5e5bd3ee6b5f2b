"""The eval run that a name means; and manifests, which are checked before anything uses them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import find_run, stored
from pytest_osmosis.record.manifest import TEST_EVAL, read_manifest
from pytest_osmosis.record.plan import Span
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
        ("sums-2026", f"matches 2, {NEW}, {OLD}; type more of the name"),
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


def written(folder: Path, content: Any) -> Path:
    path = folder / "manifest.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_manifest_is_read_with_members_of_later_versions(tmp_path: Path) -> None:
    later = {**MANIFEST, "new": 1, "plan": {**MANIFEST["plan"], "new": 2}, "shard": {"index": 2, "of": 2}}

    manifest = read_manifest(written(tmp_path, later))

    assert manifest.plan.spans == (Span(0, 2, 1),)
    assert (manifest.subject.model, manifest.subject.n, manifest.baseline) == ("demo/arithmetic", 2, None)
    assert [replace(manifest, eval=name).is_of_tests for name in ("x", "x" + TEST_EVAL)] == [False, True]


PLAN = MANIFEST["plan"]
MISSHAPEN: list[tuple[Any, str]] = [
    ("{", "is not JSON: "),
    ("[]", "must be an object, got []"),
    ({"schema_version": 2}, "has schema_version 2, and this version of pytest-osmosis reads 1"),
    ({"started_at": "now"}, "started_at: must be a time in ISO 8601 with its zone, got 'now'"),
    ({"plan": {**PLAN, "spans": [[0, 1]]}}, "plan.spans[0]: must be a list of length 3, got [0, 1]"),
    ({"plan": {**PLAN, "spans": [[0, 10**14, 1]]}}, "plan: holds 200,000,000,000,000 runs"),
    ({"plan": {**PLAN, "path": "\0"}}, r"plan: path, dataset: must be paths, got the character \x00"),
    ({"typed": [{"table": "data"}]}, "typed[0]: lacks key"),
    ({"input_salt": "0"}, "input_salt: must be hexadecimal digits, got '0'"),
    ({"shard": {"index": 3, "of": 2}}, "shard: there is no shard 3 of 2"),
    ({"target": {"replicas": [{"provider": 3}]}}, "target.replicas[0].provider: must be text, got 3"),
    ({"cassette": {"mode": "x", "path": ""}}, "cassette.mode: cannot be 'x'"),
]
"""A text, or members of a manifest, and the beginning of what is said about it."""


@pytest.mark.parametrize(("content", "text"), MISSHAPEN)
def test_a_manifest_of_another_shape_is_an_error_with_its_place(tmp_path: Path, content: Any, text: str) -> None:
    with pytest.raises(OsmosisError, match=re.escape(f"manifest.json: {text}")):
        read_manifest(written(tmp_path, content if isinstance(content, str) else {**MANIFEST, **content}))
