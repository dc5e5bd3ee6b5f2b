"""The same runs by the rules of Osmosis' eval mode and of verifiers: where all ran, the numbers are the same.

Their formulas are written down here as they are documented; docs/explanation/statistics.md says where ours differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats import RunScore, summarize

Rows = Mapping[int, Sequence[float]]

whole_rows = st.integers(2, 6).flatmap(
    lambda n: st.dictionaries(
        st.integers(0, 20), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n), min_size=1, max_size=8
    )
)


def eval_mode(rows: Rows, n: int, k: int) -> float:
    """pass@k of Osmosis' eval mode: a row counts with max(its runs, n), and averages over rows with a run."""
    values = []
    for scores in rows.values():
        size, passed = max(len(scores), n), sum(score >= 1.0 for score in scores)
        values.append(1.0 - math.comb(size - passed, k) / math.comb(size, k) if size - passed >= k else 1.0)
    return sum(values) / len(values)


def verifiers(rows: Rows, n: int, k: int) -> tuple[float, float]:
    """pass@k and pass^k of verifiers: rows with fewer than n runs are left out."""
    counts = [sum(score >= 1.0 for score in scores) for scores in rows.values() if len(scores) >= n]
    at = [1.0 - math.comb(n - c, k) / math.comb(n, k) for c in counts]
    hat = [math.comb(c, k) / math.comb(n, k) for c in counts]
    return sum(at) / len(at), sum(hat) / len(hat)


def run_scores(rows: Rows) -> dict[int, list[RunScore]]:
    return {row: [RunScore(score, score >= 1.0) for score in scores] for row, scores in rows.items()}


@pytest.mark.slow
@given(whole_rows)
def test_all_three_agree_if_every_run_ended(rows: dict[int, list[float]]) -> None:
    n = len(next(iter(rows.values())))
    summary = summarize(run_scores(rows), n)
    scores = [score for row in rows.values() for score in row]

    mean = sum(scores) / len(scores)
    assert summary.mean == pytest.approx(mean)
    assert summary.std == pytest.approx(
        math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores)), abs=1e-12
    )
    for k, value in summary.pass_at.items():
        assert value == pytest.approx(eval_mode(rows, n, k)) == pytest.approx(verifiers(rows, n, k)[0])
    for k, value in summary.pass_hat.items():
        assert value == pytest.approx(verifiers(rows, n, k)[1])


def test_a_row_that_lacks_runs_counts_for_the_k_that_it_reaches() -> None:
    rows: Rows = {0: [1.0, 0.0, 0.0], 1: [1.0, 0.0]}  # of three runs a row one never ran

    ours = summarize(run_scores(rows), 3).pass_at

    assert ours == pytest.approx({1: (1 / 3 + 1 / 2) / 2, 2: (2 / 3 + 1) / 2, 3: 1.0})
    assert eval_mode(rows, 3, 2) == pytest.approx((2 / 3 + 2 / 3) / 2)  # the missing run is taken for a fail
    assert verifiers(rows, 3, 2)[0] == pytest.approx(2 / 3)  # the row is left out
