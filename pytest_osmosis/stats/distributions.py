"""Quantiles of the normal distribution."""

from __future__ import annotations


def normal_quantile(p: float) -> float:
    """Return the value below which a standard normal variable lies with probability p, 0 < p < 1 (else ValueError).

    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    from statistics import NormalDist

    if not 0 < p < 1:
        raise ValueError(f"a quantile is defined for 0 < p < 1, not for p = {p}")
    return NormalDist().inv_cdf(p)
