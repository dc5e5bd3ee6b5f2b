"""The table of several evals: every cell is true, and it fits the terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.formats.price import Price
from pytest_osmosis.models.prices import price_from
from pytest_osmosis.report.overview import overview_lines, overview_rows, total_line
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.results.results import EvalDescription, Results
from pytest_osmosis.text.safe import width
from pytest_osmosis.verdicts.gates import State, Verdict
from tests.unit.made import A, B, failed, finished, of_baseline, pending, removed, results_of

PRICE = price_from(TokenPrices(1.0, 1.0), "[prices]")


def named(name: str, results: Results, model: str = "vendor/some-model") -> Results:
    return replace(results, description=EvalDescription(name, model, 1, {"path": f"configs/eval/{name}.toml"}))


def verdicts(*states: State) -> list[Verdict]:
    return [Verdict(f"gate {number}", state, "why") for number, state in enumerate(states)]


def cells(results: Results) -> dict[str, str]:
    """The cells of an eval by the heads of their columns."""
    head, row, *_ = overview_rows([results])
    return dict(zip(head, row, strict=True))


HALF = [finished({A: float(row % 2)}, row) for row in range(4)]
HOLDS = results_of(HALF, minimum=0.4)


def test_a_whole_eval_shows_its_rate_with_interval_mean_gate_cost_and_time() -> None:
    shown = cells(named("x", results_of(HALF, minimum=0.4, price=PRICE)))

    assert shown == {
        "eval": "x",
        "model": "vendor/some-model",
        "pass rate (95% interval)": "0.500 (0.078 to 0.922)",
        "mean": "0.500",
        "gate": "HOLDS",
        "cost": "$0.000072",  # 4 runs of 18 tokens, at $1 a million
        "time": "3.2 s",
    }


STOPPED = replace(results_of([*HALF, pending(9)]), n_planned=5)


@pytest.mark.parametrize(
    ("results", "rate"),
    [
        (replace(results_of(HALF), partial=True, n_planned=40), "2 of 4 passed (40 planned)"),
        (replace(results_of(HALF), partial=True, smoke_of=40), "2 of 4 passed (smoke)"),
        (replace(STOPPED, stopped="max_cost_usd"), "2 of 4 passed (5 planned)"),
        (replace(STOPPED, stopped="decided: ...", stop_reason="decided"), "2 of 4 passed (5 planned)"),
        (results_of([failed("provider", row) for row in range(4)]), "not measured"),
        (results_of([failed("model", row) for row in range(2)]), "0.000 (0.000 to 0.776)"),
        (results_of([pending(row) for row in range(4)], stopped="interrupted"), "never ran"),
        (results_of([removed(row) for row in range(4)]), "no run"),
    ],
    ids=["partial", "smoke", "stopped", "decided", "unmeasured", "failed", "never ran", "removed"],
)
def test_an_eval_that_was_not_measured_whole_shows_no_pass_rate(results: Results, rate: str) -> None:
    shown = cells(results)

    assert shown["pass rate (95% interval)"] == rate
    assert (shown["mean"] == "-") == (not rate.startswith("0"))


def test_a_rate_that_counts_unmeasured_runs_is_marked_and_explained() -> None:
    evals = [results_of([*HALF, failed("host", 4)])]

    assert cells(evals[0])["pass rate (95% interval)"].startswith("*0.400 (")
    assert "* counts runs that were not measured as not passed" in overview_lines(evals)
    assert total_line(evals).startswith("1 eval; 2 of 5 runs passed, 1 not measured; ")
    assert not any(line.startswith("*") for line in overview_lines([results_of(HALF)]))


@pytest.mark.parametrize(
    ("states", "cell"),
    [
        ((), "-"),
        (("holds", "holds"), "HOLDS"),
        (("holds", "fails"), "FAILS 1/2"),
        (("fails", "fails"), "FAILS"),
        (("holds", "not measured"), "NOT MEASURED 1/2"),
        (("partial",), "not decided"),
        (("holds", "not decided"), "not decided 1/2"),
        (("not measured", "fails"), "FAILS 1/2"),
    ],
)
def test_the_worst_gate_speaks_for_an_eval(states: tuple[State, ...], cell: str) -> None:
    assert cells(replace(results_of(HALF), verdicts=verdicts(*states)))["gate"] == cell


def test_costs_are_known_unknown_or_a_lower_bound_and_several_deciding_functions_have_no_mean() -> None:
    def cost(*records: object, price: Price | None = PRICE) -> str:
        return cells(results_of(list(records), price=price))["cost"]  # type: ignore[arg-type]

    assert cost(*HALF, price=None) == "unknown"
    assert cost(finished({A: 1.0}), failed("agent", 1)) == ">= $0.000018"
    assert cost(failed("agent")) == "unknown"
    assert cost(pending(0)) == "$0"

    several = [finished({A: 1.0, B: 0.5}, row) for row in range(3)]

    assert cells(results_of(several, scorers=[A, B]))["mean"] == "-"
    assert cells(results_of(several, scorers=[A, B], decide=B))["mean"] == "0.500"


def test_a_baselines_model_has_a_row_with_its_own_numbers() -> None:
    baseline = [of_baseline(finished({A: 1.0}, row)) for row in range(4)]

    _, own, other = overview_rows([results_of(HALF, baseline=baseline, baseline_price=PRICE)])

    assert own[2:4] == ["0.500 (0.078 to 0.922)", "0.500"]
    assert own[5] == "unknown"
    assert other[:4] == ["  baseline", "other", "1.000 (0.473 to 1.000)", "1.000"]
    assert other[4:] == ["-", "$0.000072", ""]


def test_the_last_line_counts_evals_by_their_gates_and_adds_up() -> None:
    made = [replace(results_of(HALF, price=PRICE), verdicts=verdicts(*states)) for states in FIVE]

    assert total_line(made) == (
        "5 evals: 1 fails, 1 not measured, 1 not decided, 1 holds, 1 without a gate; 10 of 20 runs passed; "
        "$0.00036, 16.1 s"
    )
    assert total_line([results_of(HALF), made[0]]).endswith("; >= $0.000072, 6.4 s")


FIVE: list[tuple[State, ...]] = [("holds", "fails"), ("not measured",), ("partial",), ("holds",), ()]


def test_columns_line_up_and_evals_of_one_name_are_told_apart_by_their_paths() -> None:
    lines = overview_lines([named("set2", results_of(HALF, minimum=0.4)), named("set10", results_of(HALF))])

    assert lines == [
        "eval   model              pass rate (95% interval)   mean  gate      cost   time",
        "set2   vendor/some-model    0.500 (0.078 to 0.922)  0.500  HOLDS  unknown  3.2 s",
        "set10  vendor/some-model    0.500 (0.078 to 0.922)  0.500  -      unknown  3.2 s",
        "",
        "2 evals: 1 holds, 1 without a gate; 4 of 8 runs passed; cost unknown, 6.4 s",
    ]

    same = [replace(results_of(HALF), description=EvalDescription("x", "m", 1, {"path": path})) for path in ("a", "b")]

    assert [row[0] for row in overview_rows(same)[1:]] == ["x (a)", "x (b)"]


def test_a_table_that_is_too_wide_names_a_common_model_below_and_shortens_other_names() -> None:
    evals = [named("the_first_regression_suite", results_of(HALF)), named("the_second_suite", results_of(HALF))]
    alike = overview_lines(evals, columns=90)
    different = overview_lines([evals[0], named("y", results_of(HALF), "vendor/a-model-with-a-long-name")], columns=79)

    assert alike[0].split()[:2] == ["eval", "pass"]
    assert alike[1].startswith("the_first_regression_suite  ")
    assert alike[-1].startswith("2 evals of vendor/some-model; ")
    assert different[1].startswith("the_first...on_suite  ")
    assert different[2].startswith("y                     ")


@given(
    st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=60), min_size=2), st.integers(60, 200)
)
def test_the_table_fits_and_keeps_every_number(names: list[str], columns: int) -> None:
    evals = [named(name, HOLDS, f"vendor/{name}") for name in names]

    *table, _ = overview_lines(evals, columns)

    assert all(width(line) <= columns for line in table)
    assert sum("0.500 (0.078 to 0.922)" in line for line in table) == len(names)


def entries(made: dict[str, Results]) -> list[Results]:
    """The results of evals that are entries of one config, each compared with the first."""
    table = entry_table("x.toml", made)
    return [replace(named(name, results), among=table) for name, results in made.items()]


BETTER = results_of([finished({A: 1.0}, row) for row in range(20)])
FIRST = results_of([finished({A: float(row % 2)}, row) for row in range(20)])
OTHERS = results_of([finished({A: 1.0}, row) for row in range(100, 120)])


def test_entries_of_a_config_are_compared_with_the_first_unless_rows_or_measures_lack() -> None:
    lines = overview_lines(entries({"a": FIRST, "a~t=1": BETTER, "a~t=2": FIRST}))

    assert [re.split(r" {2,}", line)[2:] for line in lines[:4]] == [
        ["runs", "pass rate (95% interval)", "mean", "to the first (95% interval)", "p", "cost", "time"],
        ["20", "0.500 (0.279 to 0.721)", "0.500", "first", "-", "unknown", "3.2 s"],
        ["20", "1.000 (0.861 to 1.000)", "1.000", "+0.500 (+0.216 to +0.721)", "0.0039", "unknown", "3.2 s"],
        ["20", "0.500 (0.279 to 0.721)", "0.500", "0.000 (-0.139 to +0.139)", "1", "unknown", "3.2 s"],
    ]
    assert lines[4] == "compared with a, over the 20 rows that both measured; p by Holm's method for 2 comparisons"

    unmeasured = results_of([failed("provider", row) for row in range(20)], stopped="401: no key")

    head, _, other, missing = overview_rows(made := entries({"a": FIRST, "b": OTHERS, "c": unmeasured}))

    assert dict(zip(head, other, strict=True))["to the first (95% interval)"].startswith("~+0.500 (")
    assert dict(zip(head, missing, strict=True)) == {
        "eval": "c",
        "model": "vendor/some-model",
        "runs": "20",
        "pass rate (95% interval)": "not measured",
        "mean": "-",
        "to the first (95% interval)": "-",
        "p": "-",
        "cost": "unknown",
        "time": "3.2 s",
    }
    assert [line for line in overview_lines(made) if "compared" in line or line.startswith("~")] == [
        "compared with a",
        "~ not paired: 20 rows that are not the 20 rows of a",
        "c: not compared: not measured: 401: no key",
    ]


def test_few_rows_are_said_to_show_nothing_and_other_evals_share_the_table() -> None:
    few = results_of([finished({A: 1.0}, row) for row in range(5)])

    lines = overview_lines(entries({"a": FIRST, "b": few}))
    assert "5 rows cannot show a difference: p is at least 0.062, whatever the rows are" in lines

    gated = replace(BETTER, verdicts=verdicts("holds"))

    head, *rows = overview_rows([named("z", results_of(HALF)), *entries({"a": FIRST, "b": gated})])

    at = {title: column for column, title in enumerate(head)}
    assert [row[at["gate"]] for row in rows] == ["-", "-", "HOLDS"]
    assert [row[at["p"]] for row in rows] == ["-", "-", "0.002"]


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_table_of_entries_fits_the_terminal_and_its_names_stay_different(columns: int) -> None:
    made = entries({f"some-environment~temperature={n}~max_tokens=512": FIRST for n in range(12)})

    lines = overview_lines(made, columns)

    table = lines[: next(number for number, line in enumerate(lines) if line.startswith("compared with"))]
    assert all(width(line) <= columns for line in table)
    names = [line.split()[0] for line in table[1:13]]
    assert len(set(names)) == 12
    assert all(name.startswith("~temp") for name in names)
