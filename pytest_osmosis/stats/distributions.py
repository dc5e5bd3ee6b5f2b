"""Quantiles and tails of the normal and Student's t distribution, without a dependency on scipy."""

from __future__ import annotations

import functools
import math


def normal_quantile(p: float) -> float:
    """Return the value below which a standard normal variable lies with probability p, 0 < p < 1 (else ValueError).

    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    from statistics import NormalDist

    _need_probability(p)
    return NormalDist().inv_cdf(p)


def student_t_tail(t: float, df: float) -> float:
    """Return the probability that Student's t with df > 0 degrees of freedom exceeds t >= 0 (else ValueError).

    Half the regularized incomplete beta function I_x(df/2, 1/2) at x = df / (df + t^2) (Abramowitz and Stegun
    1964, 26.7.1 with 26.5.2).

    >>> round(student_t_tail(1.0, 1), 9)
    0.25
    """
    if df <= 0 or t < 0:
        raise ValueError(f"the tail is defined for df > 0 and t >= 0, not for df = {df}, t = {t}")
    return 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t))


@functools.lru_cache(maxsize=64)
def student_t_quantile(p: float, df: float) -> float:
    """Return the value below which Student's t with df degrees of freedom lies with probability p.

    Bisects `student_t_tail`. Undefined outside 0 < p < 1 and df > 0: ValueError.

    >>> round(student_t_quantile(0.975, 9), 4)
    2.2622
    """
    _need_probability(p)
    if p < 0.5:
        return -student_t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while student_t_tail(high, df) > 1 - p:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if student_t_tail(middle, df) > 1 - p else (low, middle)
    return low


def _need_probability(p: float) -> None:
    if not 0 < p < 1:
        raise ValueError(f"a quantile is defined for 0 < p < 1, not for p = {p}")


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """Return I_x(a, b), the regularized incomplete beta function; y is 1 - x, passed separately to keep its digits."""
    if x <= 0 or y <= 0:
        return 0.0 if x <= 0 else 1.0
    log_x = math.log(x) if x < 0.5 else math.log1p(-y)
    log_y = math.log(y) if y < 0.5 else math.log1p(-x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * log_x + b * log_y)
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, y) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8; Lentz's method)."""
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 100_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _not_zero(1.0 + numerator * d)
            c = _not_zero(1.0 + numerator / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            return value
    raise ArithmeticError(f"the incomplete beta function did not converge at a = {a}, b = {b}, x = {x}")


def _not_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
