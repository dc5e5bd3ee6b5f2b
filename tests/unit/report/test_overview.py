"""The table of several evals, true in each cell and no wider than the terminal; the live line; Markdown; styles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.models.prices import price_from
from pytest_osmosis.record.run_record import RunCounts
from pytest_osmosis.report.live_line import Pace, live_line, session_counts
from pytest_osmosis.report.markdown import MOST_CHANGED, MOST_LISTED, markdown
from pytest_osmosis.report.overview import overview_lines, overview_rows, total_line
from pytest_osmosis.report.style import Style, ansi, bad, dim, good, joined, painted
from pytest_osmosis.results.entry_table import entry_table
from pytest_osmosis.results.results import EvalDescription, Results
from pytest_osmosis.text.redaction import Sanitizer
from pytest_osmosis.text.safe import width
from pytest_osmosis.verdicts.comparison import Matched, Pair
from pytest_osmosis.verdicts.gates import State, Verdict
from tests.golden import Golden
from tests.unit.made import A, B, failed, finished, of_baseline, pending, removed, results_of

PRICE = price_from(TokenPrices(1.0, 1.0), "[prices]")


def named(name: str, results: Results, model: str = "vendor/some-model") -> Results:
    return replace(results, description=EvalDescription(name, model, 1, {"path": f"configs/eval/{name}.toml"}))


def verdicts(*states: State) -> list[Verdict]:
    return [Verdict(f"gate {number}", state, "why") for number, state in enumerate(states)]


def cells(results: Results) -> dict[str, str]:
    head, row, *_ = overview_rows([results])
    return dict(zip(head, row, strict=True))


HALF = [finished({A: float(row % 2)}, row) for row in range(4)]
HOLDS = results_of(HALF, minimum=0.4)
STOPPED = replace(results_of([*HALF, pending(9)], stopped="decided: ..."), n_planned=5, stop_reason="decided")


@pytest.mark.parametrize(
    ("results", "rate"),
    [
        (replace(results_of(HALF), partial=True, n_planned=40), "2 of 4 passed (40 planned)"),
        (replace(results_of(HALF), partial=True, smoke_of=40), "2 of 4 passed (smoke)"),
        (STOPPED, "2 of 4 passed (5 planned)"),
        (results_of([failed("provider", row) for row in range(4)]), "not measured"),
        (results_of([failed("model", row) for row in range(2)]), "0.000 (0.000 to 0.776)"),
        (results_of([pending(row) for row in range(4)], stopped="interrupted"), "never ran"),
        (results_of([removed(row) for row in range(4)]), "no run"),
    ],
    ids=["partial", "smoke", "decided", "unmeasured", "failed", "never ran", "removed"],
)
def test_an_eval_that_was_not_measured_whole_shows_no_pass_rate(results: Results, rate: str) -> None:
    shown = cells(results)

    assert shown["pass rate (95% interval)"] == rate
    assert (shown["mean"] == "-") == (not rate.startswith("0"))


@pytest.mark.parametrize(
    ("states", "cell"),
    [
        ((), "-"),
        (("holds", "holds"), "HOLDS"),
        (("holds", "fails"), "FAILS 1/2"),
        (("holds", "not measured"), "NOT MEASURED 1/2"),
        (("partial",), "not decided"),
        (("not measured", "fails"), "FAILS 1/2"),
    ],
)
def test_the_worst_gate_speaks_for_an_eval(states: tuple[State, ...], cell: str) -> None:
    assert cells(replace(results_of(HALF), verdicts=verdicts(*states)))["gate"] == cell


def test_costs_are_known_unknown_or_a_lower_bound() -> None:
    one, agent = finished({A: 1.0}), failed("agent", 1)
    costs = {">= $0.000018": [one, agent], "unknown": [agent], "$0": [pending()]}
    assert {cells(results_of(records, price=PRICE))["cost"]: records for records in costs.values()} == costs
    assert cells(results_of(HALF))["cost"] == "unknown"


@pytest.mark.parametrize(("decide", "mean"), [("all", "-"), (B, "0.500")])
def test_several_deciding_functions_have_no_mean(decide: str, mean: str) -> None:
    assert cells(results_of([finished({A: 1.0, B: 0.5})], scorers=[A, B], decide=decide))["mean"] == mean


def test_the_last_line_counts_evals_by_their_gates_and_adds_up() -> None:
    five: list[tuple[State, ...]] = [("holds", "fails"), ("not measured",), ("partial",), ("holds",), ()]
    made = [replace(results_of(HALF, price=PRICE), verdicts=verdicts(*states)) for states in five]

    assert total_line(made) == (
        "5 evals: 1 fails, 1 not measured, 1 not decided, 1 holds, 1 without a gate; 10 of 20 runs passed; "
        "$0.00036, 16.1 s"
    )
    assert total_line([results_of(HALF), made[0]]).endswith("; >= $0.000072, 6.4 s")
    nothing = [results_of([pending(0), pending(1)]), results_of([pending(0)])]
    assert total_line(nothing) == "2 evals; none of 3 runs finished; $0, 6.4 s"


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
BASELINE = [of_baseline(finished({A: 1.0}, row)) for row in range(4)]


def shown() -> dict[str, list[Results]]:
    few = results_of([finished({A: 1.0}, row) for row in range(5)])
    unmeasured = results_of([failed("provider", row) for row in range(20)], stopped="401: no key")
    return {
        "one eval": [named("x", results_of(HALF, minimum=0.4, price=PRICE))],
        "evals in columns": [named("set2", results_of(HALF, minimum=0.4)), named("set10", results_of(HALF))],
        "evals of one name": [
            replace(results_of(HALF), description=EvalDescription("x", "m", 1, {"path": path})) for path in ("a", "b")
        ],
        "a model beside its baseline": [results_of(HALF, baseline=BASELINE, baseline_price=PRICE)],
        "unmeasured runs in a rate": [results_of([*HALF, failed("host", 4)])],
        "entries of a config": entries({"a": FIRST, "a,t=1": BETTER, "a,t=2": FIRST}),
        "entries with other rows or none": entries({"a": FIRST, "b": OTHERS, "c": unmeasured}),
        "entries with few rows": entries({"a": FIRST, "b": few}),
        "entries beside another eval": [
            named("z", results_of(HALF)), *entries({"a": FIRST, "b": replace(BETTER, verdicts=verdicts("holds"))}),
        ],
    }  # fmt: skip


def test_a_table_of_evals_is_shown_line_by_line(golden: Golden) -> None:
    golden({**{name: overview_lines(evals) for name, evals in shown().items()}, **lines_of_runs()})


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_table_of_entries_fits_the_terminal_and_its_names_stay_different(columns: int) -> None:
    made = entries({f"some-environment,temperature={n},max_tokens=512": FIRST for n in range(12)})

    lines = overview_lines(made, columns)

    table = lines[: next(number for number, line in enumerate(lines) if line.startswith("compared with"))]
    assert all(width(line) <= columns for line in table)
    names = [line.split()[0] for line in table[1:13]]
    assert len(set(names)) == 12
    assert all(name.startswith(",temp") for name in names)


@pytest.mark.parametrize(
    ("states", "stopped_by", "expected"),
    [
        ((), None, "1 of 2 runs passed"),
        (("holds",), None, "every gate holds"),
        (("holds", "not measured"), None, "not measured"),
        (("fails", "not measured"), None, "a gate fails"),
        (("fails", "fails"), None, "2 gates fail"),
        (("partial",), None, "1 of 2 runs passed"),
        (("holds",), "interrupt", "stopped"),
        (("holds",), "decided", "every gate holds"),
    ],
)
def test_the_title_is_the_worst_verdict_of_the_gates(states: Sequence[State], stopped_by: Any, expected: str) -> None:
    results = results_of([finished({A: 1.0}), finished({A: 0.0}, 1)], stopped=stopped_by)
    shown = markdown(replace(results, verdicts=verdicts(*states), stop_reason=stopped_by))
    assert shown.splitlines()[0].rpartition(": ")[2] == expected


def test_the_line_below_the_title_names_model_dataset_and_rows() -> None:
    of_rows = {"dataset": "data/x.jsonl", "selection": "sample 6 of 60, seed 0"}
    whole = results_of([finished({A: 1.0})], n=2, extra=of_rows)
    compared = results_of([finished({A: 1.0})], baseline=[of_baseline(finished({A: 1.0}))])

    lines = [markdown(results).splitlines()[2] for results in (whole, compared)]

    assert lines == [
        "vendor/some-model on data/x.jsonl (rows: sample 6 of 60, seed 0), n = 2",
        "vendor/some-model, baseline other",
    ]


def test_runs_that_did_not_pass_and_rows_that_changed_are_listed_up_to_a_bound() -> None:
    records = [replace(failed("agent", row), error="KeyError: 'x'") for row in range(MOST_LISTED + 7)]

    lines = markdown(results_of(records)).splitlines()

    assert "<details><summary>57 runs did not pass</summary>" in lines
    assert "| row0-run0 | agent: KeyError: 'x' |" in lines
    assert "| ... | 7 more |" in lines
    assert not any(f"row{MOST_LISTED}-" in line for line in lines)

    n_rows = MOST_CHANGED + 3
    rerun = [finished({A: float(row == 0)}, row) for row in range(n_rows)]
    pairs = [Pair(row, row, [row == 0], [row != 0]) for row in range(n_rows)]

    changed = markdown(results_of(rerun, previous=Matched(pairs))).splitlines()

    assert "<details><summary>Against the last eval run: 1 row better, 1,002 worse</summary>" in changed
    assert "| row | passed then | passed now |" in changed
    assert "| row1 | 1/1 | 0/1 |" in changed
    assert "| ... | 3 more in results.json |  |" in changed


def test_text_of_other_authors_is_escaped() -> None:
    record = replace(failed("agent"), error="a | b\n<script>alert(1)</script> [x](y) @team #1 \x1b[31m")

    text = markdown(results_of([record]))

    said = "a \\| b &lt;script&gt;alert(1)&lt;/script&gt; \\[x\\](y) &#64;team &#35;1 \\\\x1b\\[31m"
    assert f"| row0-run0 | agent: {said} |" in text


SECRET = "sk-a-secret-of-the-session"


def tagged(text: str, style: Style) -> str:
    """Paint for a reader: "<good>text</>"."""
    return f"<{style}>{text}</>"


def test_styled_text_equals_its_plain_text_and_joined_keeps_every_style() -> None:
    line, styles = joined("gate x: ", good("HOLDS"), ": 9 of 10"), joined(joined("a ", bad("b")), " ", "", dim("c"))

    assert line in {"gate x: HOLDS: 9 of 10"}
    assert painted(styles, str, tagged) == "a <bad>b</> <dim>c</>"
    assert painted(joined("a ", bad("b"), " c"), str, ansi) == "a \x1b[31mb\x1b[0m c"
    assert painted("plain", str, tagged) == "plain"
    assert painted(joined("plain", good("")), str, tagged) == "plain"


@pytest.mark.parametrize("hostile", ["\x1b[32mHOLDS\x1b[0m", "\x9b32mHOLDS", "\r\x1b]0;title\x07"])
def test_control_characters_in_a_text_stay_escapes(hostile: str) -> None:
    shown = painted(joined(hostile, bad(hostile)), Sanitizer().shown, tagged)

    clean = Sanitizer().shown(hostile)
    assert shown == f"{clean}<bad>{clean}</>"
    assert shown.isprintable()


def test_a_secret_or_a_command_across_pieces_is_found() -> None:
    sanitizer = Sanitizer({"KEY": SECRET})

    across = painted(joined(SECRET[:9], bad(SECRET[9:])), sanitizer.shown, ansi)
    command = painted(joined("#", bad("#[group]x")), sanitizer.shown, ansi)
    within = painted(joined("key ", bad(SECRET)), sanitizer.shown, tagged)

    assert across == sanitizer.shown(SECRET)
    assert SECRET[9:] not in across
    assert command == sanitizer.shown("##[group]x")
    assert within == f"key <bad>{sanitizer.shown(SECRET)}</>", "it leaves the styles"


def line(columns: int | None = None, name: str = "multiply", *, mean: bool = True, **counts: Any) -> str:
    """The line of an eval that began 10 s before."""
    progress = RunCounts(**counts)
    return live_line(name, progress, paced(progress), mean=mean, columns=columns)


def paced(progress: RunCounts, batch_size: int = 8, began_s: float = 10.0) -> Pace:
    """Return the pace of an eval that reached `progress` after `began_s` seconds."""
    pace = Pace(batch_size)
    pace.saw(0.0, RunCounts(submitted=progress.submitted))
    pace.saw(began_s, progress)
    return pace


HALF_DONE: dict[str, Any] = {
    "submitted": 500, "done": 240, "passed": 193, "unmeasured": 3, "score": 193.5, "in_flight": 32, "retrying": 4,
    "tokens": 12_340,
}  # fmt: skip


def lines_of_runs() -> dict[str, Iterable[str]]:
    held = {"in_flight": 2, "held": 30, "held_by": "tokens_per_minute"}
    half, ending = RunCounts(**HALF_DONE), RunCounts(submitted=110, done=100)
    session = session_counts([(RunCounts(submitted=20, done=20, tokens=5_000), 20), (half, 500), (RunCounts(), 480)])
    with_baseline = RunCounts(submitted=40, done=20, baseline=10, passed=5, score=5.0)
    return {
        "in a log, with everything but a bar": [line(**HALF_DONE), line(**{**HALF_DONE, **held})],
        "in 200, 90, 50 and 5 columns": [line(columns, **HALF_DONE) for columns in (200, 90, 50, 5)],
        "a name of wide characters": [line(60, "日本語の評価", submitted=4, done=1)],
        "before the first rollout": [
            *(line(submitted=500), line(submitted=500, retrying=1), line(submitted=500, in_flight=32)),
        ],
        "several evals": [
            live_line("multiply", half, paced(session.runs), mean=True, columns=columns, session=session)
            for columns in (None, 70, 44)
        ],
        "runs that were taken out": [
            *(line(submitted=9, done=4, removed=2, passed=2, score=2.0), line(submitted=9, done=2, removed=2)),
        ],
        "no mean": [line(submitted=9, done=4, passed=4, score=math.inf), line(mean=False, **HALF_DONE)],
        "beside a baseline": [live_line("x", with_baseline, paced(with_baseline), mean=True)],
        "0, 1, 999 and 1000 of 1000": [line(submitted=2000, done=1000, passed=passed) for passed in (0, 1, 999, 1000)],
        "0.3, 41, 58, 61, 601 and 7201 s left": [
            live_line("x", ending, paced(ending, began_s=left_s * 10), mean=False)
            for left_s in (0.3, 41, 58, 61, 601, 7201)
        ],
    }


@given(st.text(max_size=40), st.integers(1, 120), st.booleans())
def test_the_line_is_never_wider_than_the_terminal(name: str, columns: int, mean: bool) -> None:
    assert width(line(columns, name, mean=mean, **HALF_DONE)) <= columns


@pytest.mark.parametrize(("done", "batch_size"), [(0, 1), (9, 1), (63, 64), (100, 8)])
def test_no_time_is_promised_before_a_round_has_ended_or_after_the_last_run(done: int, batch_size: int) -> None:
    progress = RunCounts(submitted=100, done=done)

    assert paced(progress, batch_size).left_s(progress) is None


def test_the_time_that_is_left_follows_the_recent_pace_and_grows_while_no_run_ends() -> None:
    pace = Pace(2)
    for second in range(101):  # one a second, then ten times slower
        pace.saw(float(second), RunCounts(submitted=200, done=second))
    fast = pace.left_s(RunCounts(submitted=200, done=100))
    for second in range(110, 411, 10):
        pace.saw(float(second), RunCounts(submitted=200, done=90 + second // 10))
    slow = pace.left_s(RunCounts(submitted=200, done=131))

    assert fast == pytest.approx(100)
    assert slow == pytest.approx(690)

    progress = RunCounts(submitted=100, done=50)
    stalled = paced(progress)
    early = stalled.left_s(progress)
    stalled.saw(100.0, progress)

    assert early == pytest.approx(10)
    assert stalled.left_s(progress) == pytest.approx(100)


def test_the_pace_covers_whole_waves_of_long_rollouts() -> None:
    """Eight at once, a minute each: half a minute alone would see nothing, or eight."""
    pace = Pace(8)
    promised = []
    for second in range(0, 601, 5):
        progress = RunCounts(submitted=160, done=8 * (second // 60))
        pace.saw(float(second), progress)
        left_s = pace.left_s(progress)
        if left_s is not None and second >= 180:
            promised.append((second + left_s) / 1200)
    assert len(promised) > 80
    assert all(0.8 < share < 1.5 for share in promised)
