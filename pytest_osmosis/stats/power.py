"""Power: the chance that an eval notices a difference."""

from __future__ import annotations

from pytest_osmosis.stats.distributions import normal_cdf

ALPHA = 0.05
"""A p below this is significant."""
POWER = 0.8
"""A power below this is called low."""


def chance_below(margin: float, se: float) -> float:
    """Return the chance that a normal estimate falls below a bound that its true value lies `margin` below.

    1.0 or 0.0 if the standard error is 0; 0.5 if the true value is the bound.

    >>> round(chance_below(0.05, 0.05), 4)
    0.8413
    """
    if se == 0:
        return 0.5 if margin == 0 else float(margin > 0)
    return normal_cdf(margin / se)
