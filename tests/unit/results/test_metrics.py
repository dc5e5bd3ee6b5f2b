"""The figures over all runs: metrics, requests to judges, causes of runs without a score; and the table of entries."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import AsyncMock

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

import pytest_osmosis
from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.errors import ModelError
from pytest_osmosis.formats.codec import decode
from pytest_osmosis.formats.price import Price
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.prices import price_from
from pytest_osmosis.models.retry import RetryPolicy, chat
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import JudgeUse, RunNotes, RunRecord
from pytest_osmosis.report.statistics import metric_lines
from pytest_osmosis.results.entry_table import EntryTable, entry_table
from pytest_osmosis.results.publish import published
from pytest_osmosis.results.results import Results, causes_of
from pytest_osmosis.results.totals import JudgeTotals, judge_totals, metric_summaries
from pytest_osmosis.stats import compare, holm
from pytest_osmosis.verdicts.comparison import EntryDifference
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.golden import Golden
from tests.raised import raised
from tests.unit.made import BROKE, A, B, failed, finished, of_baseline, pending, removed, results_of, rolled


def told(record: RunRecord, **metrics: Mapping[str, float]) -> RunRecord:
    return replace(record, notes=RunNotes({{"a": A, "b": B}.get(source, source): m for source, m in metrics.items()}))


def test_numbers_whose_sum_is_too_large_have_a_mean_and_an_eval_without_metrics_no_table() -> None:
    records = [told(finished({A: 1.0}, row), a={"x": 1.7e308}) for row in range(3)]

    assert metric_summaries(records, [A])[A]["x"].mean == 1.7e308
    assert metric_summaries([finished({A: 1.0}), pending(1)], [A]) == {}
    assert metric_lines(results_of([finished({A: 1.0})])) == []


def test_the_table_lists_every_metric_of_both_models(golden: Golden) -> None:
    records = [
        told(finished({A: 1.0}), rollout={"turns": 2.0}, a={"f1": 0.5}),
        told(finished({A: 0.0}, 1), rollout={"turns": 5.0}),
        told(finished({A: 1.0}, 2), a={"f1": 0.0, "turns": -1.0}),
        told(failed("agent", 3), rollout={"turns": 2.0}),
        told(removed(4), rollout={"turns": 1000.0}),
        pending(5),
        told(rolled(6), rollout={"turns": 1000.0}),
    ]
    baseline = [of_baseline(told(finished({A: 1.0}), rollout={"turns": 7.0, "calls": 1.0}))]
    many = results_of([told(finished({A: 1.0}), a={f"m{n}": 1.0 for n in range(25)})])
    both = [told(finished({A: 1.0, B: 1.0}), rollout={"x": 1.0}, a={"x\n\x1b[2J": 1.0}, b={"x": 1.0})]

    golden(
        {
            "both models": metric_lines(results_of(records, baseline=baseline)),
            "a long table": metric_lines(many),
            "a long table in verbose output": metric_lines(many, verbose=True),
            "several functions": metric_lines(results_of(both, scorers=(A, B))),
        }
    )


PRICE = price_from(TokenPrices(1.0, 2.0, 1.0, 1.0), "the config")
"""For each million of tokens."""


def use(model: str, *, retries: int = 0, uncounted: int = 0, base_url: str | None = None) -> JudgeUse:
    return JudgeUse(model, base_url, 2, retries, uncounted, (("input_tokens", 100), ("output_tokens", 10)))


def price_of(judge: JudgeUse) -> Price | None:
    return PRICE if judge.model == "priced" else None


def totals_of(*uses: Sequence[JudgeUse]) -> JudgeTotals:
    totals = judge_totals([finished({A: 1.0}, row, judge_uses=each) for row, each in enumerate(uses)], price_of)
    assert totals is not None
    return totals


def test_costs_are_those_of_known_prices_and_runs_with_another_cost_are_counted() -> None:
    uses = [(use("priced", retries=1),), (use("priced"), use("free")), (use("priced", uncounted=1),), ()]

    totals = totals_of(*uses)

    assert (totals.calls, totals.retries, totals.uncounted, totals.total_tokens) == (8, 1, 1, 440)
    assert totals.cost_usd == totals.models["priced"].cost_usd == pytest.approx(2 * (100 + 2 * 10) / 1e6)
    assert totals.cost_unknown == 2
    by_name = {name: (sums.calls, sums.cost_unknown, sums.price) for name, sums in totals.models.items()}
    assert by_name == {"free": (2, 1, None), "priced": (6, 1, PRICE)}
    assert totals.models["free"].cost_usd is None


def test_judges_at_different_addresses_are_different_and_without_requests_there_are_no_sums() -> None:
    totals = totals_of((use("m"), use("m", base_url="http://a"), use("m", base_url="http://b")))

    names = ("m", "m at http://a", "m at http://b")
    assert {name: sums.calls for name, sums in totals.models.items()} == dict.fromkeys(names, 2)
    assert judge_totals([finished({A: 1.0})], price_of) is None


RULE = PassRule((A,))


@pytest.mark.parametrize(
    ("one", "other", "n_causes"),
    [
        ("the server answered 502 Bad Gateway (3 tries)", "the server answered 502 Bad Gateway", 1),
        ("503: request req_011CSHoEeqs5C35K2UUqR7Fy failed", "503: request req_019XyZoEeqs5C35K2UUqR7Ab failed", 1),
        ("429: try again in 450ms", "429: try again in 6m0.5s", 1),
        ("cannot reach http://127.0.0.1:38211/v1: refused", "cannot reach http://127.0.0.1:40009/v1: refused", 1),
        ("IndexError: no item 7 in row 12", "IndexError: no item 1,200 in row 3", 1),
        ("broken at 0x7f00aa", "broken at 0x1", 1),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 99999999-e89b-12d3-a456-426614174000", 1),
        ("the server answered 520", "the server answered 529", 2),
        ("Error code: 400 - no", "Error code: 404 - no", 2),
    ],
)
def test_errors_that_differ_only_in_numbers_are_one_cause(one: str, other: str, n_causes: int) -> None:
    causes = causes_of([failed("agent", 1, error=other), failed("agent", 0, error=one)], RULE)

    assert [run for cause in causes for run in cause.runs] == [RunId(0, 0), RunId(1, 0)]
    assert len(causes) == n_causes


def test_causes_are_told_apart_by_boundary_and_the_most_frequent_comes_first() -> None:
    causes = causes_of([failed("agent", 0), failed("model", 1), failed("provider", 2)], RULE)
    errors = ["rare", "often", "early", "often"]
    by_number = causes_of([failed("agent", row, error=error) for row, error in enumerate(errors)], RULE)

    assert {cause.boundary: cause.is_measured for cause in causes} == {"agent": True, "model": True, "provider": False}
    assert [(cause.text, cause.first.row) for cause in by_number] == [("often", 1), ("rare", 0), ("early", 2)]
    assert causes_of([finished({A: 0.0}), pending(1), removed(2)], RULE) == []


def test_an_error_of_a_deciding_function_names_it_and_its_number_does_not_merge_two() -> None:
    records = [finished({B: 1.0}, errors={A: BROKE}), finished({B: 1.0}, 1)]
    names = ("rewards:exact1", "rewards:exact2")
    numbered = [
        finished(dict.fromkeys({*names} - {name}, 1.0), row, errors={name: BROKE}) for row, name in enumerate(names)
    ]

    causes = causes_of(records, PassRule((A, B)))
    assert [cause.text for cause in causes] == [f"{A}: ValueError: no", f"{A}: gave no score"]
    assert causes_of(records, PassRule((A, B), decide=B)) == []
    assert len(causes_of(numbered, PassRule(names))) == 2


def test_a_cause_is_one_short_line_which_says_if_there_is_no_message() -> None:
    (cause,) = causes_of([failed("agent", error="a\n\x1b[31mb" + "c" * 10_000)], RULE)

    assert cause.text.startswith("a \\x1b[31mb")
    assert len(cause.text) < 250
    assert len(cause.short_text) == 80
    assert [cause.text for cause in causes_of([failed("host", error=error) for error in (None, "  ")], RULE)] == [
        "no message"
    ]


@pytest.mark.parametrize("remaining_s", [None, 1e-9, 0.3])
def test_the_errors_of_several_tries_are_the_cause_of_the_first(remaining_s: float | None) -> None:
    """The texts are those of `models.retry`: whichever way it gives up, the cause is what the server answered."""
    refusing = AsyncMock()
    refusing.chat.side_effect = ModelError("the server answered 502 Bad Gateway", status=502, retryable=True)
    asked = chat(
        refusing,
        ChatRequest(messages=[]),
        timeout_s=60,
        policy=RetryPolicy(2, 0.001 if remaining_s is None else 1.0),
        remaining_s=lambda: remaining_s,
        waiting=lambda delay_s: contextlib.nullcontext(),
        rng=Random(0),
    )
    message = str(raised(ModelError, asyncio.run, asked))

    assert message != "the server answered 502 Bad Gateway"
    assert [cause.text for cause in causes_of([failed("provider", error=message)], RULE)] == ["502 Bad Gateway"]


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
OTHERS = results_of(scored([1.0] * 20, first=100))


def test_each_entry_is_compared_with_the_first_row_by_row_and_p_is_corrected_together() -> None:
    table = table_of({"a": FIRST, "b": BETTER, "c": results_of(scored([1.0, 0.0] * 9 + [0.0, 1.0]))})

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


@pytest.mark.parametrize(("n_rows", "n_others", "least"), [(5, 1, 0.0625), (6, 1, None), (6, 2, 2 * 2**-5)])
def test_few_rows_show_no_difference_and_more_comparisons_need_more(n_rows: int, n_others: int, least: Any) -> None:
    others = {str(n): results_of(scored([1.0] * n_rows)) for n in range(n_others)}

    assert table_of({"a": FIRST, **others}).least_p == least


def test_published_and_read_back_it_is_the_same_and_fits_the_schema() -> None:
    schema = json.loads((Path(pytest_osmosis.__file__).parent / "results.schema.json").read_text(encoding="utf-8"))
    table = table_of({"a": FIRST, "b": BETTER, "c": OTHERS, "d": NOTHING})

    data = json.loads(json.dumps(published(replace(BETTER, among=table))["comparison"], allow_nan=False))

    assert decode(data, EntryTable) == table
    later = {**data, "new": 1, "entries": [{**entry, "new": 1} for entry in data["entries"]]}
    assert decode(later, EntryTable) == table
    schema = {**schema["$defs"]["entries"], "$defs": schema["$defs"]}
    assert [error.message for error in Draft202012Validator(schema).iter_errors(data)] == []
    declared = {key for name in ("entries", "entry", "entry_difference") for key in schema["$defs"][name]["properties"]}
    assert {*data, *data["entries"][1], *data["entries"][1]["difference"]} == declared
