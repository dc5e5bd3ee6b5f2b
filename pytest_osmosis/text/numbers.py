"""Numbers in messages, and messages that are equal but for their numbers."""

from __future__ import annotations

import math
import re

HUGE = 1e15
"""The least score that is shown with an exponent: nobody reads hundreds of digits."""


def count(n: int) -> str:
    """Return a count with thousands separators.

    >>> count(1000)
    '1,000'
    """
    return f"{n:,}"


def plural(n: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "row"), plural(1000, "row")
    ('1 row', '1,000 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def distinguishable(value: float, bound: float) -> tuple[str, str]:
    """Return a value and its bound, short, but with enough digits to look different if they are.

    >>> distinguishable(0.2, 0.5), distinguishable(1 / 3, 0.5), distinguishable(0.69999999, 0.7)
    (('0.2', '0.5'), ('0.333333', '0.5'), ('0.69999999', '0.7'))
    """
    short = f"{value:g}", f"{bound:g}"
    return (repr(value), repr(bound)) if short[0] == short[1] and value != bound else short


def score(value: float | None) -> str:
    """Return a score or a ratio, or "-" for None.

    >>> score(0.72), score(1234.5), score(-2.5e159), score(None)
    ('0.720', '1,234.5', '-2.5e+159', '-')
    """
    if value is None:
        return "-"
    if abs(value) >= HUGE:
        return f"{value:.4g}"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.1f}"


def difference(value: float) -> str:
    """Return a difference of scores or ratios, with its sign.

    >>> difference(-0.0664), difference(0.02), difference(0.0), difference(1e160)
    ('-0.066', '+0.020', '0.000', '+1e+160')
    """
    return ("+" if value > 0 else "") + score(value or 0.0)


def money(usd: float) -> str:
    """Return an amount of US dollars: with cents from $1, and with two significant digits below.

    >>> money(1234.5), money(1.0), money(0.0123), money(0.0000456), money(0.0)
    ('$1,234.50', '$1.00', '$0.012', '$0.000046', '$0')
    """
    if usd == 0:
        return "$0"
    if usd >= 0.995:
        return f"${usd:,.2f}"
    return f"${usd:.{max(2, 1 - math.floor(math.log10(usd)))}f}"


def byte_size(n_bytes: int) -> str:
    """Return a size in decimal units.

    >>> byte_size(0), byte_size(999), byte_size(1234), byte_size(5_600_000), byte_size(2_000_000_000)
    ('0 B', '999 B', '1.2 kB', '5.6 MB', '2.0 GB')
    """
    value = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{n_bytes} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def p_value(p: float) -> str:
    """Return a p-value with "=" or "<".

    >>> p_value(0.6636), p_value(0.05), p_value(0.0004), p_value(1.0)
    ('= 0.66', '= 0.05', '< 0.001', '= 1')
    """
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def moment(iso: str) -> str:
    """Return an ISO 8601 time in UTC, to the minute.

    >>> moment("2026-11-20T14:03:59.123+00:00")
    '2026-11-20 14:03 UTC'
    """
    return f"{iso[:16].replace('T', ' ')} UTC"


def clock_time(iso: str) -> str:
    """Return the time of day of an ISO 8601 time in UTC.

    >>> clock_time("2026-11-20T14:03:59.123+00:00")
    '14:03:59 UTC'
    """
    return f"{iso[11:19]} UTC"


def seconds(value: float) -> str:
    """Return a duration in readable units.

    >>> seconds(0.0123), seconds(3.21), seconds(75.0), seconds(7300.0)
    ('0.01 s', '3.2 s', '1 min 15 s', '2 h 1 min')
    >>> seconds(0.999), seconds(59.97)
    ('1.0 s', '1 min 0 s')
    """
    if value < 0.995:
        return f"{value:.2f} s"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


_STATUS = r"(?P<status>\b(?:answered|error|http|status|code):?(?: code)?:? [1-5]\d\d\b)"
_ID = r"0x[0-9a-f]+|\b(?=[\w-]*\d)[\w-]{8,}"
_NUMBERS = r"(?:\d+(?:[.,:]\d+)*\s?(?:ms|us|s|min|m|h|(?:milli)?seconds?|minutes?)?(?=[^a-z]|\d|$)|\d+)+"
_VARIABLE = re.compile(rf"{_STATUS}|{_ID}|{_NUMBERS}", re.IGNORECASE)
"""The parts of an error that differ between requests, and statuses of HTTP, which do not."""


def pattern_of(message: str) -> str:
    """Return a message with "#" in place of numbers, times and ids. Statuses of HTTP are kept.

    >>> pattern_of("the server answered 502 Bad Gateway (request 8a7f00e1 at 10.0.0.1:8080)")
    'the server answered 502 Bad Gateway (request # at #)'
    >>> pattern_of("try again in 450ms"), pattern_of("try again in 6m0.5s"), pattern_of("IndexError at row12")
    ('try again in #', 'try again in #', 'IndexError at row#')
    """
    return _VARIABLE.sub(lambda match: match["status"] or "#", message)
