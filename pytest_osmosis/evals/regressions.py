"""Comparisons with baselines when one session compares several evals.

Each comparison is a test of its own, so a p below 0.05 turns up by chance more often the more evals there are. Holm's
correction keeps the chance of any false regression in the session at 5%.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.stats import holm
from pytest_osmosis.verdicts.comparison import RowComparison


def corrected(comparisons: Sequence[RowComparison | None]) -> list[RowComparison | None]:
    """Return the comparisons of a session's evals with Holm's p; None for an eval without one."""
    p_values = [found.paired.p for found in comparisons if found is not None and found.paired is not None]
    if len(p_values) < 2:
        return list(comparisons)
    adjusted = iter(holm(p_values))
    return [
        found.among(len(p_values), next(adjusted)) if found is not None and found.paired is not None else found
        for found in comparisons
    ]
