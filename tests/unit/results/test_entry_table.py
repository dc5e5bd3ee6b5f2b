"""The table of the entries of a config: who is compared with whom, and how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

import pytest_osmosis
from pytest_osmosis.formats.codec import decode
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.entry_table import EntryTable, entry_table
from pytest_osmosis.results.publish import published
from pytest_osmosis.results.results import Results
from pytest_osmosis.stats import compare, compare_unpaired, holm
from pytest_osmosis.verdicts.comparison import EntryDifference
from tests.unit.made import A, B, failed, finished, pending, results_of

SCHEMA = json.loads((Path(pytest_osmosis.__file__).parent / "results.schema.json").read_text(encoding="utf-8"))


def scored(scores: Sequence[float], first: int = 0) -> list[RunRecord]:
    """One run for each row, from row `first` on."""
    return [finished({A: score}, row) for row, score in enumerate(scores, first)]


table_of = partial(entry_table, "x.toml")


def difference(table: EntryTable, name: str) -> EntryDifference:
    found = table.of(name)
    assert found is not None
    assert found.difference is not None
    return found.difference


FIRST = results_of(scored([1.0, 0.0] * 10))
BETTER = results_of(scored([1.0] * 20))
ALIKE = results_of(scored([1.0, 0.0] * 9 + [0.0, 1.0]))
OTHERS = results_of(scored([1.0] * 20, first=100))


def test_each_entry_is_compared_with_the_first_row_by_row_and_p_is_corrected_together() -> None:
    table = table_of({"a": FIRST, "b": BETTER, "c": ALIKE})

    paired = [compare([1.0] * 20, [1.0, 0.0] * 10), compare([1.0, 0.0] * 9 + [0.0, 1.0], [1.0, 0.0] * 10)]
    assert (table.first, table.compared) == ("a", 2)
    assert [entry.name for entry in table.entries] == ["a", "b", "c"]
    for found, expected in zip(table.differences, paired, strict=True):
        assert (found.paired, found.rows, found.first_rows, found.left_out) == (True, 20, 20, 0)
        assert (found.difference, found.interval, found.p_value) == (expected.difference, expected.interval, expected.p)
        assert (found.better, found.worse, found.test) == (expected.better, expected.worse, expected.test)
    assert [found.p_adjusted for found in table.differences] == holm([each.p for each in paired])
    assert [found.meaning for found in table.differences] == ["better", "chance"]
    assert [found.meaning for found in table_of({"b": BETTER, "a": FIRST}).differences] == ["worse"]


def test_entries_with_other_rows_are_compared_unpaired() -> None:
    found = difference(table_of({"a": FIRST, "b": OTHERS}), "b")

    expected = compare_unpaired([1.0] * 20, [1.0, 0.0] * 10)
    assert not found.paired
    assert (found.rows, found.first_rows, found.p_value, found.interval) == (20, 20, expected.p, expected.interval)


def test_figures_are_those_of_each_entry() -> None:
    several = results_of([finished({A: 1.0, B: 0.5}, row) for row in range(3)], scorers=[A, B])

    first, second = table_of({"a": FIRST, "b": several}).entries

    assert (first.rows, first.runs, first.measured, first.passed, first.pass_rate) == (20, 20, 20, 10, 0.5)
    assert (first.mean, second.mean, second.run, second.model) == (0.5, None, "x-1", "vendor/some-model")
    assert first.pass_rate_interval == FIRST.overall.pass_rate_interval


@pytest.mark.parametrize(("n_common", "paired"), [(20, True), (10, True), (9, False)])
def test_rows_are_paired_if_at_least_half_of_them_are_the_same(n_common: int, paired: bool) -> None:
    found = difference(table_of({"a": FIRST, "b": results_of(scored([1.0] * 20, first=20 - n_common))}), "b")

    assert found.paired == paired
    assert found.rows == (n_common if paired else 20)
    assert found.left_out == (2 * (20 - n_common) if paired else 0)


@pytest.mark.parametrize(
    ("results", "rows", "left_out"),
    [
        (results_of(scored([1.0] * 4)), 4, 16),
        (results_of([*scored([1.0] * 18), failed("provider", 18), failed("host", 19)]), 18, 2),
        (results_of([*scored([1.0] * 10), *map(pending, range(10, 20))], stopped="interrupted"), 10, 10),
    ],
    ids=["smaller", "unmeasured", "stopped"],
)
def test_an_entry_is_compared_over_the_rows_that_both_measured(results: Results, rows: int, left_out: int) -> None:
    found = difference(table_of({"a": FIRST, "b": results}), "b")

    assert (found.paired, found.rows, found.left_out, found.difference) == (True, rows, left_out, 0.5)


NOTHING = results_of([failed("provider", row) for row in range(20)], stopped="the code does not load")


def test_entries_that_cannot_be_compared_say_why_and_none_is_with_a_first_one_that_was_not_measured() -> None:
    part, decided = replace(BETTER, partial=True), replace(BETTER, stop_reason="decided", stopped="a gate fails")

    table = table_of({"a": FIRST, "unmeasured": NOTHING, "part": part, "decided": decided, "b": BETTER})

    assert {entry.name: entry.reason for entry in table.entries} == {
        "a": None,
        "unmeasured": "not measured: the code does not load",
        "part": "only a part of its plan was selected",
        "decided": "it stopped once its gates were decided, and the runs until then favour that verdict",
        "b": None,
    }
    assert [entry.difference is not None for entry in table.entries] == [False, False, False, False, True]
    assert (table.compared, difference(table, "b").p_adjusted) == (1, difference(table, "b").p_value)
    assert table.entries[1].pass_rate is None

    unmeasured = table_of({"a": NOTHING, "b": BETTER, "c": results_of([pending(0)])})

    reason = "the first entry, a, cannot be compared: not measured: the code does not load"
    assert [entry.reason for entry in unmeasured.entries] == [
        "not measured: the code does not load", reason, "not measured",
    ]  # fmt: skip
    assert unmeasured.differences == []


@pytest.mark.parametrize(
    ("n_rows", "n_others", "least"), [(5, 1, 0.0625), (6, 1, None), (1, 1, 1.0), (6, 2, 2 * 2**-5)]
)
def test_few_rows_show_no_difference_and_more_comparisons_need_more(n_rows: int, n_others: int, least: Any) -> None:
    others = {str(n): results_of(scored([1.0] * n_rows)) for n in range(n_others)}

    assert table_of({"a": FIRST, **others}).least_p == least


def test_published_and_read_back_it_is_the_same_and_fits_the_schema() -> None:
    table = table_of({"a": FIRST, "b": BETTER, "c": OTHERS, "d": NOTHING})

    data = json.loads(json.dumps(published(replace(BETTER, among=table))["comparison"], allow_nan=False))

    assert decode(data, EntryTable) == table
    later = {**data, "new": 1, "entries": [{**entry, "new": 1} for entry in data["entries"]]}
    assert decode(later, EntryTable) == table
    schema = {**SCHEMA["$defs"]["entries"], "$defs": SCHEMA["$defs"]}
    assert [error.message for error in Draft202012Validator(schema).iter_errors(data)] == []
    declared = {key for name in ("entries", "entry", "entry_difference") for key in SCHEMA["$defs"][name]["properties"]}
    assert {*data, *data["entries"][1], *data["entries"][1]["difference"]} == declared
