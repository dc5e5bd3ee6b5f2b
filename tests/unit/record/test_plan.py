"""Plans: their runs, their order, their JSON and their seeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis.formats.codec import decode, encode
from pytest_osmosis.record.plan import Plan, Span, run_seed, shuffled, spans_of
from pytest_osmosis.record.run_id import ModelTag, RunId


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


SEEDS = {(0, RunId(0, 0)): 1346006995, (0, RunId(0, 1)): 1453980333, (42, RunId(999, 4)): 1515936938}


def test_seeds_never_change_between_versions() -> None:
    assert {of: run_seed(*of) for of in SEEDS} == SEEDS


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


@given(st.integers(), st.integers(0, 10**6), st.integers(0, 1000))
def test_seeds_are_in_the_range_of_servers(seed: int, row: int, run: int) -> None:
    assert 0 <= run_seed(seed, RunId(row, run)) < 2**31
