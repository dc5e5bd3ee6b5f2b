"""Rows that changed, by name, with the command that shows one."""

from __future__ import annotations

from dataclasses import replace

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.statistics import changed_rows_lines
from pytest_osmosis.results.results import Results
from pytest_osmosis.verdicts.comparison import Against, Matched, Pair, changed_rows
from tests.unit.made import A, finished, last_run, removed, results_of


def ran(*runs: bool, row: int = 0) -> list[RunRecord]:
    """The records of a row whose runs passed or did not."""
    return [finished({A: float(passed)}, row, index) for index, passed in enumerate(runs)]


def lines(pairs: list[Pair], results: Results, against: Against = "last_run") -> list[str]:
    found = {**last_run(Matched(pairs), "x-0"), "changed_rows": changed_rows(pairs, against)}
    return changed_rows_lines(against, replace(results, **found))


def test_worse_rows_are_named_before_better_ones_with_counts_and_a_command() -> None:
    results = results_of([*ran(True), *ran(False, row=1), *ran(True, row=2)])
    pairs = [Pair(0, 0, [True], [False]), Pair(1, 4, [False], [True]), Pair(2, 2, [True], [True])]

    assert lines(pairs, results) == [
        "  worse: row1 (was row4)",
        "  better: row0",
        "  row1 now: pytest-osmosis show x-1 row1-run0",
    ]

    of_five = results_of([*ran(True, False, True, False, False, row=12), *ran(True, False)], n=5)
    several = [Pair(0, 0, [True, False], [False]), Pair(12, 12, [True, False, True, False, False], [True] * 5)]

    assert lines(several, of_five) == [
        "  worse: row12 5/5 -> 2/5",
        "  better: row0 0/1 -> 1/2",
        "  row12 now: pytest-osmosis show x-1 row12-run1",
    ]


def test_only_the_first_ten_rows_are_named_with_a_run_that_counts_or_passed() -> None:
    results = results_of([record for row in range(14) for record in ran(False, row=row)])
    pairs = [Pair(row, row, [False], [True]) for row in range(14)]

    assert lines(pairs, results)[0] == f"  worse: {', '.join(f'row{row}' for row in range(10))} and 4 more"
    assert lines([Pair(0, 0, [True], [True])], results_of(ran(True))) == []

    removed_first = results_of([removed(), finished({A: 0.0}, 0, 1)], n=2)
    better = results_of(ran(False, True), n=2)

    assert "  row0 now: pytest-osmosis show x-1 row0-run1" in lines([Pair(0, 0, [False], [True])], removed_first)
    assert lines([Pair(0, 0, [False, True], [False, False])], better, "rescored") == [
        "  better: row0 0/2 -> 1/2",
        "  row0 now: pytest-osmosis show x-1 row0-run1",
    ]


def test_commands_can_be_copied_from_any_folder() -> None:
    one, own = [Pair(0, 0, [False], [True])], results_of(ran(False))
    names = {
        "../my evals/x-1": "'../my evals/x-1'",
        "-runs/x-1": "./-runs/x-1",
        ".osmosis/runs/-x": "./.osmosis/runs/-x",
    }

    found = {folder: lines(one, replace(own, provenance={"run_dir": folder}))[1] for folder in names}

    assert found == {folder: f"  row0 now: pytest-osmosis show {name} row0-run0" for folder, name in names.items()}
