"""The live line: every part is true, fits, and says nothing before it can."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.record.run_record import RunCounts
from pytest_osmosis.report.live_line import Pace, live_line, session_counts
from pytest_osmosis.text.safe import width


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


HALF: dict[str, Any] = {
    "submitted": 500, "done": 240, "passed": 193, "unmeasured": 3, "score": 193.5, "in_flight": 32, "retrying": 4,
    "tokens": 12_340,
}  # fmt: skip


def test_a_log_gets_everything_but_a_bar() -> None:
    begin, end = "multiply 240/500, 80% passed, mean 0.806, 3 not measured, 15 s left, ", "1,234 tokens/s"
    held = {"in_flight": 2, "held": 30, "held_by": "tokens_per_minute"}

    assert line(**HALF) == f"{begin}32 in flight, 4 waiting to retry, {end}"
    assert line(**{**HALF, **held}) == f"{begin}2 in flight, 4 waiting to retry, 30 held by tokens_per_minute, {end}"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            200,
            "multiply [####------] 240/500, 80% passed, mean 0.806, 3 not measured, 15 s left, 32 in flight, "
            "4 waiting to retry, 1,234 tokens/s",
        ),
        (90, "multiply [####------] 240/500, 80% passed, mean 0.806, 3 not measured, 15 s left"),
        (50, "multiply [####------] 240/500, 80% passed"),
        (5, "mu..."),
    ],
)
def test_the_last_parts_are_left_out_until_the_line_fits(columns: int, expected: str) -> None:
    assert line(columns, **HALF) == expected


@given(st.text(max_size=40), st.integers(1, 120), st.booleans())
def test_the_line_is_never_wider_than_the_terminal(name: str, columns: int, mean: bool) -> None:
    assert width(line(columns, name, mean=mean, **HALF)) <= columns


def test_before_anything_was_handed_to_a_host_an_eval_is_starting() -> None:
    assert line(submitted=500) == "multiply 0/500, starting"
    assert line(submitted=500, retrying=1) == "multiply 0/500, 0 in flight, 1 waiting to retry"
    assert line(submitted=500, in_flight=32) == "multiply 0/500, 32 in flight"


EVALS = [
    (RunCounts(submitted=20, done=20, tokens=5_000), 20),
    (RunCounts(**HALF), 500),
    (RunCounts(), 480),
]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            None,
            "1/3 evals, 260/1,000 runs, multiply 240/500, 80% passed, mean 0.806, 3 not measured, 30 s left, "
            "32 in flight, 4 waiting to retry, 1,734 tokens/s",
        ),
        (70, "[##--------] 1/3 evals, 260/1,000 runs, multiply 240/500, 80% passed"),
        (44, "[##--------] 1/3 evals, 260/1,000 runs"),
    ],
)
def test_of_several_evals_all_are_counted_before_the_one_that_runs(columns: int | None, expected: str) -> None:
    session = session_counts(EVALS)

    shown = live_line("multiply", EVALS[1][0], paced(session.runs), mean=True, columns=columns, session=session)

    assert shown == expected


def test_only_the_evals_own_runs_that_count_are_in_shares_and_several_functions_have_no_mean() -> None:
    assert "100% passed, mean 1.000" in line(submitted=9, done=4, removed=2, passed=2, score=2.0)
    assert "mean" not in line(submitted=9, done=4, passed=4, score=math.inf)
    assert "passed" not in line(submitted=9, done=2, removed=2)
    assert "mean" not in line(mean=False, **HALF)

    counts = RunCounts(submitted=40, done=20, baseline=10, passed=5, score=5.0)

    shown = live_line("x", counts, paced(counts), mean=True)

    assert "20/40" in shown
    assert "50% passed, mean 0.500" in shown


@pytest.mark.parametrize(
    ("passed", "done", "shown"), [(0, 1000, "0%"), (1, 1000, "1%"), (999, 1000, "99%"), (1000, 1000, "100%")]
)
def test_a_share_is_0_or_100_percent_only_if_exact(passed: int, done: int, shown: str) -> None:
    assert f", {shown} passed" in line(submitted=2000, done=done, passed=passed)


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


@pytest.mark.parametrize(
    ("left_s", "shown"),
    [(0.3, "5 s"), (41, "45 s"), (58, "1 min"), (61, "1 min 10 s"), (601, "11 min"), (7201, "2 h 1 min")],
)
def test_remaining_times_are_rounded(left_s: float, shown: str) -> None:
    progress = RunCounts(submitted=110, done=100)
    assert live_line("x", progress, paced(progress, began_s=left_s * 10), mean=False).endswith(
        f", {shown} left, 0 in flight"
    )
