"""What an eval can notice, and how many rows it takes: power and the smallest detectable effect."""

from __future__ import annotations

import math

from pytest_osmosis.stats.distributions import normal_cdf, normal_quantile

ALPHA = 0.05
POWER = 0.8


def rows_for(
    effect: float,
    between: float,
    within: tuple[float, float] = (0.0, 0.0),
    n: tuple[float, float] = (1, 1),
    alpha: float = ALPHA,
    power: float = POWER,
) -> float:
    """How many rows tell two evals `effect` apart, two-sided at `alpha`, with a chance of `power`.

    (z_{1 - alpha/2} + z_power)^2 (between + within_a / n_a + within_b / n_b) / effect^2, where `between` is the
    variance over rows of the difference, `within` that of either eval's runs around their row, `n` their runs a row
    (Miller 2024, arXiv 2411.00640, section 5). Not rounded up. Undefined for an effect of 0: ValueError.

    >>> round(rows_for(0.03, 1 / 9, (1 / 6, 1 / 6)), 2)
    3875.99
    """
    if effect == 0:
        raise ValueError("no number of rows shows an effect of 0")
    return (_z(alpha, power) / effect) ** 2 * (between + within[0] / n[0] + within[1] / n[1])


def smallest_effect(
    rows: float,
    between: float,
    within: tuple[float, float] = (0.0, 0.0),
    n: tuple[float, float] = (1, 1),
    alpha: float = ALPHA,
    power: float = POWER,
) -> float:
    """The smallest effect that so many rows tell apart: `rows_for` turned round. Undefined without rows: ValueError.

    >>> round(smallest_effect(198, 1 / 9, (1 / 6, 1 / 6)), 6)
    0.132733
    """
    if rows <= 0:
        raise ValueError("the smallest effect is undefined without rows")
    return _z(alpha, power) * math.sqrt((between + within[0] / n[0] + within[1] / n[1]) / rows)


def chance_below(margin: float, se: float) -> float:
    """The chance that a normal estimate whose truth lies `margin` below a bound falls below that bound too.

    1.0 or 0.0 where the standard error is 0; 0.5 where truth and bound are the same.

    >>> round(chance_below(0.05, 0.05), 4)
    0.8413
    """
    if se == 0:
        return 0.5 if margin == 0 else float(margin > 0)
    return normal_cdf(margin / se)


def _z(alpha: float, power: float) -> float:
    return normal_quantile(1 - alpha / 2) + normal_quantile(power)
