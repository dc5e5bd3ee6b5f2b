"""pass@k and pass^k, estimated from the number of passes among n runs."""

from __future__ import annotations

import math


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k runs passes, if c of n passed: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1): the share of the subsets of k
    runs that contain a pass. Counted in integers and divided once, so exact to the last digit.
    Undefined for k > n, k < 1 and c outside 0..n: ValueError.

    >>> pass_at_k(5, 2, 1), pass_at_k(5, 2, 3), pass_at_k(5, 2, 5)
    (0.4, 0.9, 1.0)
    """
    _need_counts("pass@k", n, c, k)
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - c, k)) / subsets


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the chance that all of k runs pass, if c of n passed: C(c, k) / C(n, k).

    pass^k of tau-bench (Yao et al. 2024, arXiv 2406.12045): the share of the subsets of k runs that are all
    passes. Undefined for k > n, k < 1 and c outside 0..n: ValueError.

    >>> pass_hat_k(5, 4, 2), pass_hat_k(5, 4, 5), pass_hat_k(4, 4, 4)
    (0.6, 0.0, 1.0)
    """
    _need_counts("pass^k", n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def ks_for(n: int) -> tuple[int, ...]:
    """Return the reported k for n runs a row, sorted: 1, the powers of two, 3, 5, 10 and n, up to n.

    Older versions of the Osmosis SDK report 1, 3, 5 and 10, newer ones powers of two. Empty for n = 1, because
    pass@1 is the pass rate.

    >>> ks_for(1), ks_for(5), ks_for(12)
    ((), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 8, 10, 12))
    """
    if n < 2:
        return ()
    powers_of_two = {1 << exponent for exponent in range(n.bit_length())}
    return tuple(sorted(k for k in powers_of_two | {3, 5, 10, n} if k <= n))


def _need_counts(name: str, n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise ValueError(f"{name}: c = {c} of n = {n} runs cannot have passed; c must lie in 0..n")
    if not 1 <= k <= n:
        raise ValueError(f"{name} is undefined for k = {k} with n = {n} runs; k must lie in 1..n")
