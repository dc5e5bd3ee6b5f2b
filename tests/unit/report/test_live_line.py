"""The live line: every part is true, fits, and says nothing before it can."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.record.run_record import RunCounts
from pytest_osmosis.report.live_line import Pace, live_line, session_counts
from pytest_osmosis.text.safe import width
from tests.golden import Golden


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


def shown() -> dict[str, Iterable[str]]:
    """Return lines by what is to be seen in them."""
    held = {"in_flight": 2, "held": 30, "held_by": "tokens_per_minute"}
    half, ending = RunCounts(**HALF), RunCounts(submitted=110, done=100)
    session = session_counts([(RunCounts(submitted=20, done=20, tokens=5_000), 20), (half, 500), (RunCounts(), 480)])
    with_baseline = RunCounts(submitted=40, done=20, baseline=10, passed=5, score=5.0)
    return {
        "in a log, with everything but a bar": [line(**HALF), line(**{**HALF, **held})],
        "in 200, 90, 50 and 5 columns": [line(columns, **HALF) for columns in (200, 90, 50, 5)],
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
        "no mean": [line(submitted=9, done=4, passed=4, score=math.inf), line(mean=False, **HALF)],
        "beside a baseline": [live_line("x", with_baseline, paced(with_baseline), mean=True)],
        "0, 1, 999 and 1000 of 1000": [line(submitted=2000, done=1000, passed=passed) for passed in (0, 1, 999, 1000)],
        "0.3, 41, 58, 61, 601 and 7201 s left": [
            live_line("x", ending, paced(ending, began_s=left_s * 10), mean=False)
            for left_s in (0.3, 41, 58, 61, 601, 7201)
        ],
    }


def test_a_line_has_what_is_known_and_fits(golden: Golden) -> None:
    golden(shown())


@given(st.text(max_size=40), st.integers(1, 120), st.booleans())
def test_the_line_is_never_wider_than_the_terminal(name: str, columns: int, mean: bool) -> None:
    assert width(line(columns, name, mean=mean, **HALF)) <= columns


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
