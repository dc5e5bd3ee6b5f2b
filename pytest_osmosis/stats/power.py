"""Power: the chance that an eval notices a difference."""

from __future__ import annotations

ALPHA = 0.05  # a p below this is significant
POWER = 0.8  # a power below this is called low


def chance_below(margin: float, se: float) -> float:
    """Return the chance that a normal estimate falls below a bound. Its true value lies `margin` below the bound.

    If the standard error is 0: 1.0 or 0.0, and 0.5 if the true value is the bound.

    >>> round(chance_below(0.05, 0.05), 4)
    0.8413
    """
    from statistics import NormalDist

    if se == 0:
        return 0.5 if margin == 0 else float(margin > 0)
    return NormalDist().cdf(margin / se)
