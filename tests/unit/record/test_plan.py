"""Plans: their runs, their order, their JSON and their seeds; manifests; and the eval run that a name means."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.formats.codec import decode, encode
from pytest_osmosis.record.find_run import find_run, stored
from pytest_osmosis.record.manifest import TEST_EVAL, read_manifest
from pytest_osmosis.record.plan import Plan, Span, run_seed, shuffled, spans_of
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import ModelTag, RunId
from tests.unit.made import MANIFEST


def plan(spans: Sequence[Span], n: int = 1, named: Sequence[Span] = ()) -> Plan:
    return Plan("x", "/ws/configs/eval/x.toml", "/ws/data/x.jsonl", tuple(spans), n, "rows 0-1", named=tuple(named))


def test_rows_and_units_have_their_lines_and_runs_in_file_order() -> None:
    of_runs = plan([Span(0, 2, 1), Span(7, 1, 9)], n=2)
    of_rows = replace(of_runs, granularity="row")

    assert list(of_runs.rows()) == [(0, 1), (1, 2), (7, 9)]
    runs = [f"row{row}-run{run}" for row in (0, 1, 7) for run in (0, 1)]
    assert list(map(str, of_runs.runs())) == list(map(str, of_runs.units())) == runs
    assert list(map(str, of_rows.units())) == ["row0", "row1", "row7"]
    assert (of_runs.n_rows, of_runs.n_runs) == (3, 6)
    for each in (of_runs, of_rows):
        assert [run for unit in each.units() for run in each.runs_of(unit)] == list(each.runs())
        assert all(each.unit_of(run) == unit for unit in each.units() for run in each.runs_of(unit))


def test_each_run_is_followed_by_the_baselines_run_with_its_seed_and_position() -> None:
    both = replace(plan([Span(7, 1, 9)], n=2), baseline=True)
    of_rows = replace(both, granularity="row")

    assert [str(run) for run in both.runs()] == ["row7-run0", "row7-run0-baseline", "row7-run1", "row7-run1-baseline"]
    assert list(map(str, of_rows.units())) == ["row7", "row7-baseline"]
    assert [run for unit in of_rows.units() for run in of_rows.runs_of(unit)] == sorted(
        both.runs(), key=lambda run: run.is_baseline
    )
    assert (both.n_runs, both.n_rollouts) == (2, 4)
    assert decode(encode(both), Plan) == both

    many = replace(plan([Span(0, 9, 1)], n=2), baseline=True)
    order = shuffled(many.runs(), seed=3)

    assert [run._replace(model=ModelTag.BASELINE) for run in order[::2]] == order[1::2]
    assert all(run_seed(5, run) == run_seed(5, run._replace(model=ModelTag.BASELINE)) for run in order)


def test_rows_that_a_node_id_names_are_collected_once_but_not_planned() -> None:
    planned = plan([Span(4, 2, 5)], n=3)
    named = planned.with_named([9, 4, 1], lambda row: row + 1)
    again = named.with_named([9, 9], lambda row: row + 1)

    assert planned.with_named([5], lambda row: row + 1) == planned
    assert [row for row, _ in named.rows()] == [row for row, _ in again.rows()] == [1, 4, 5, 9]
    assert {run.row for run in named.runs()} == {4, 5}
    assert (named.n_rows, named.n_runs) == (2, 6)


def test_the_first_rows_of_a_plan_have_one_run_each_and_an_empty_one_has_none() -> None:
    whole, empty = plan([Span(2, 2, 3), Span(7, 3, 9)], n=4, named=[Span(0, 1, 1)]), plan([])

    first = whole.first(3)

    assert list(map(str, first.runs())) == ["row2-run0", "row3-run0", "row7-run0"]
    assert [row for row, _ in first.rows()] == [0, 2, 3, 7]
    assert whole.first(2).spans == (Span(2, 2, 3),)
    assert whole.first(9).n_rows == 5
    assert (list(empty.rows()), list(empty.runs()), empty.n_runs) == ([], [], 0)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_spans_hold_exactly_their_rows_and_lines(rows: set[int], gaps: set[int]) -> None:
    line_of = {row: row + 1 + sum(gap <= row for gap in gaps) for row in rows}  # empty lines of the dataset

    spans = spans_of(sorted(rows), line_of.__getitem__)

    assert list(plan(spans).rows()) == sorted(line_of.items())
    for one, following in pairwise(spans):
        end = (one.first + one.n_rows, one.line + one.n_rows)
        assert end != (following.first, following.line), "two spans that could be one"


def test_seeds_never_change_between_versions() -> None:
    seeds = {(0, RunId(0, 0)): 1346006995, (0, RunId(0, 1)): 1453980333, (42, RunId(999, 4)): 1515936938}
    assert {of: run_seed(*of) for of in seeds} == seeds


def test_a_shuffled_order_holds_every_run_once_and_seeds_differ() -> None:
    runs = [RunId(row, run) for row in range(50) for run in range(2)]
    order = shuffled(runs, 0)

    assert order != runs
    assert sorted(order) == runs
    assert shuffled(list(reversed(runs)), 0) == order
    assert shuffled(runs, 1) != order
    assert 15 < sum(run.row < 25 for run in order[:50]) < 35  # the first rows are not favoured

    more = [RunId(row, run) for row in range(100) for run in range(10)]
    seeds = {run_seed(base, run) for base in (0, 1) for run in more}

    assert len(seeds) == 2 * len(more)
    assert 0 <= min(seeds) < max(seeds) < 2**31, "the range of servers"


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


def test_the_latest_run_is_the_newest(tmp_path: Path) -> None:
    newest, _ = (made(tmp_path / ".osmosis/runs", name) for name in (NEW, OLD))
    assert find_run(tmp_path, "latest").path == newest


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
    ({"input_salt": "0"}, "input_salt: must be hexadecimal digits, got '0'"),
    ({"shard": {"index": 3, "of": 2}}, "shard: there is no shard 3 of 2"),
    ({"target": {"replicas": [{"provider": 3}]}}, "target.replicas[0].provider: must be text, got 3"),
]
"""A text, or members of a manifest, and the beginning of what is said about it."""


@pytest.mark.parametrize(("content", "text"), MISSHAPEN)
def test_a_manifest_of_another_shape_is_an_error_with_its_place(tmp_path: Path, content: Any, text: str) -> None:
    with pytest.raises(OsmosisError, match=re.escape(f"manifest.json: {text}")):
        read_manifest(written(tmp_path, content if isinstance(content, str) else {**MANIFEST, **content}))
