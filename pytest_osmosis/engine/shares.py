"""Equal shares of a number of rollouts in flight, and the way to them while other rollouts last."""

from __future__ import annotations

from collections.abc import Sequence


def shares(total: int, parts: int) -> list[int]:
    """Return `total` in equal parts; the first ones are larger by one if it does not divide.

    >>> shares(7, 3), shares(1, 2), shares(4, 0)
    ([3, 2, 2], [1, 0], [])
    """
    return [total // parts + (index < total % parts) for index in range(parts)]


def shares_but_one(total: int, parts: int, is_one_less: bool) -> list[int]:
    """Return `shares`; with `is_one_less` the last share that is not 0 is smaller by one.

    >>> shares_but_one(4, 2, True), shares_but_one(1, 2, True), shares_but_one(0, 2, True)
    ([2, 1], [0, 0], [0, 0])
    """
    result = shares(total, parts)
    if is_one_less and total:
        result[min(total, parts) - 1] -= 1
    return result


def exact_limits(
    wanted: Sequence[int], limits: Sequence[int], occupied: Sequence[int], begun: Sequence[int]
) -> list[int]:
    """Return the limits of hosts on their way from `limits` to `wanted`, so that no more than its sum begin.

    `begun` are the rollouts that hold a slot in each host, and `occupied` those that may, as a host keeps a lower limit
    only once it has heard of it. What one has beyond its share the others lack until it ends.

    >>> exact_limits([1, 1], [2, 2], [2, 2], [2, 2]), exact_limits([1, 1], [2, 2], [2, 2], [2, 0])
    ([0, 0], [1, 0])
    >>> exact_limits([1, 0, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1])  # nor while the last host has one
    [0, 0, 0]
    >>> exact_limits([2, 2], [0, 3], [0, 3], [0, 3]), exact_limits([2, 2], [0, 2], [0, 3], [0, 2])
    ([1, 2], [1, 2])
    >>> exact_limits([2, 2], [1, 2], [1, 2], [1, 2])
    [2, 2]
    """
    result = list(wanted)
    excess = sum(max(0, has - share) for share, has in zip(wanted, begun, strict=True))
    for index, has in enumerate(begun):
        cut = min(excess, max(0, result[index] - has))
        result[index] -= cut
        excess -= cut
    if excess:
        others = [sum(begun) - has for has in begun]
        result = [max(0, min(limit, sum(wanted) - more)) for limit, more in zip(result, others, strict=True)]
    free = sum(wanted) - sum(max(*each) for each in zip(occupied, begun, strict=True))
    for index, limit in enumerate(limits):
        most = max(limit, occupied[index]) + max(0, free)
        free -= max(0, min(result[index], most) - max(limit, occupied[index]))
        result[index] = min(result[index], most)
    return result
