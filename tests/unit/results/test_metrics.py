"""The means of metrics over the runs that reported them."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_osmosis.record.run_record import RunNotes, RunRecord
from pytest_osmosis.report.statistics import metric_lines
from pytest_osmosis.results.totals import MetricSummary, metric_summaries
from tests.unit.made import A, B, failed, finished, of_baseline, pending, removed, results_of, rolled


def told(record: RunRecord, **metrics: Mapping[str, float]) -> RunRecord:
    return record._replace(notes=RunNotes({{"a": A, "b": B}.get(source, source): m for source, m in metrics.items()}))


RECORDS = [
    told(finished({A: 1.0}), rollout={"turns": 2.0}, a={"f1": 0.5}),
    told(finished({A: 0.0}, 1), rollout={"turns": 5.0}),
    told(finished({A: 1.0}, 2), a={"f1": 0.0, "turns": -1.0}),
    told(failed("agent", 3), rollout={"turns": 2.0}),
    told(removed(4), rollout={"turns": 1000.0}),
    pending(5),
    told(rolled(6), rollout={"turns": 1000.0}),
]


def test_each_metric_is_summarized_over_the_runs_that_reported_it() -> None:
    assert metric_summaries(RECORDS, [A]) == {
        "rollout": {"turns": MetricSummary(3.0, 2.0, 5.0, 3)},
        A: {"f1": MetricSummary(0.25, 0.0, 0.5, 2), "turns": MetricSummary(-1.0, -1.0, -1.0, 1)},
    }


def test_numbers_whose_sum_is_too_large_have_a_mean_and_an_eval_without_metrics_no_table() -> None:
    records = [told(finished({A: 1.0}, row), a={"x": 1.7e308}) for row in range(3)]

    assert metric_summaries(records, [A])[A]["x"].mean == 1.7e308
    assert metric_summaries([finished({A: 1.0}), pending(1)], [A]) == {}
    assert metric_lines(results_of([finished({A: 1.0})])) == []


def test_the_table_lists_every_metric_of_both_models() -> None:
    baseline = [of_baseline(told(finished({A: 1.0}), rollout={"turns": 7.0, "calls": 1.0}))]

    assert metric_lines(results_of(RECORDS, baseline=baseline)) == [
        "",
        "metric                         model    mean     min     max  runs",
        "turns              vendor/some-model   3.000   2.000   5.000     3",
        "turns                          other   7.000   7.000   7.000     1",
        "f1 (rewards:a)     vendor/some-model   0.250   0.000   0.500     2",
        "f1 (rewards:a)                 other       -       -       -     0",
        "turns (rewards:a)  vendor/some-model  -1.000  -1.000  -1.000     1",
        "turns (rewards:a)              other       -       -       -     0",
        "calls              vendor/some-model       -       -       -     0",
        "calls                          other   1.000   1.000   1.000     1",
    ]


def test_a_long_table_is_cut_unless_more_is_asked_for_and_several_functions_are_named() -> None:
    results = results_of([told(finished({A: 1.0}), a={f"m{n}": 1.0 for n in range(25)})])

    assert len(metric_lines(results)) == 23
    assert metric_lines(results)[-1] == "and 5 more rows of metrics: -v, results.json"
    assert len(metric_lines(results, verbose=True)) == 27

    records = [told(finished({A: 1.0, B: 1.0}), rollout={"x": 1.0}, a={"x\n\x1b[2J": 1.0}, b={"x": 1.0})]

    lines = metric_lines(results_of(records, scorers=(A, B)))

    assert [line.partition("  ")[0] for line in lines[2:]] == ["x", f"x \\x1b[2J ({A})", f"x ({B})"]
