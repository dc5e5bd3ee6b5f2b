"""`--osmosis-confirm-above=USD`: what may cost more than that begins only when someone at the terminal says so.

The estimate is what the last whole run of the same plan cost, in proportion to the runs that are selected. Where no
such run is known the cost is unknown, which counts as above.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from pytest_osmosis.evals import Prepared
from pytest_osmosis.text.numbers import money

_YES = ("y", "yes")
_ANY_TOKENS = {"input_tokens": 1, "output_tokens": 1}


def estimate(prepared: Prepared, n_selected: int) -> float | None:
    """US dollars that `n_selected` runs may cost, None where nobody knows.

    `prepared.last` is of the same plan, so that its runs are as many as the plan's.
    """
    last = prepared.last
    if all(price is not None and price.cost_usd(_ANY_TOKENS) == 0 for price in prepared.prices.values()):
        return 0.0
    if last is None or last.cost_usd is None:
        return None
    return last.cost_usd * n_selected / last.n_runs


def above(estimates: Mapping[str, float | None], usd: float) -> str | None:
    """What to say where the evals together may cost more than `usd`, else None.

    >>> above({"x": 0.5, "y": 0.7}, 1.0)
    'about $1.20, above $1.00'
    >>> above({"x": 0.5, "y": None}, 1.0)
    'the cost of y is unknown, as no earlier run of it has one'
    """
    unknown = [name for name, cost in estimates.items() if cost is None]
    total = sum(cost for cost in estimates.values() if cost is not None)
    if total > usd:
        return f"about {money(total)}, above {money(usd)}"
    if unknown:
        return f"the cost of {', '.join(unknown)} is unknown, as no earlier run of it has one"
    return None


def ask(config: pytest.Config, said: str) -> bool | None:
    """Whether someone at the terminal wants it, None where there is no terminal to ask on."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # afterwards as before: between tests it is suspended already
        capture.suspend_global_capture(in_=True)
        try:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                return None
            sys.stdout.write(f"\nosmosis: {said}. Begin? [y/N] ")
            sys.stdout.flush()
            return sys.stdin.readline().strip().lower() in _YES
        finally:
            capture.resume_global_capture()
            capture.suspend_global_capture()
