"""`--osmosis-confirm-above=USD`: evals that may cost more start only if somebody at the terminal agrees.

The estimate is the cost of the last whole run of the same plan, scaled to the selected runs. Without such a run the
cost is unknown, and somebody has to agree too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from pytest_osmosis.evals import Prepared
from pytest_osmosis.text.numbers import money
from pytest_osmosis.text.safe import encodable, escaped

_YES = ("y", "yes")
_ANY_TOKENS = {"input_tokens": 1, "output_tokens": 1}


def estimate(prepared: Prepared, n_selected: int) -> float | None:
    """Return the US dollars that `n_selected` runs may cost, None if unknown.

    `prepared.last` has the same plan, so it has as many runs as the plan.
    """
    last = prepared.last
    if prepared.replays or all(
        price is not None and price.cost_usd(_ANY_TOKENS) == 0 for price in prepared.all_prices.values()
    ):
        return 0.0
    if last is None or last.cost_usd is None or last.judges_cost_usd is None:
        return None
    return (last.cost_usd + last.judges_cost_usd) * n_selected / last.total_runs


def above(estimates: Mapping[str, float | None], usd: float) -> str | None:
    """Return the reason to ask, None if the evals together cost no more than `usd`.

    >>> above({"x": 0.5, "y": 0.7}, 1.0)
    'about $1.20, above $1.00'
    >>> above({"x": 0.5, "y": None}, 1.0)
    'the cost of y is unknown, because no earlier run recorded one'
    """
    unknown = [escaped(name) for name, cost in estimates.items() if cost is None]
    total = sum(cost for cost in estimates.values() if cost is not None)
    if total > usd:
        return f"about {money(total)}, above {money(usd)}"
    if unknown:
        return f"the cost of {', '.join(unknown)} is unknown, because no earlier run recorded one"
    return None


def ask(config: pytest.Config, reason: str) -> bool | None:
    """Ask at the terminal whether to start; None if there is no terminal."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():  # restores the state, which between tests is suspended
        capture.suspend_global_capture(in_=True)
        try:
            if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
                return None
            sys.stdout.write(encodable(f"\nosmosis: {reason}. Start? [y/N] ", sys.stdout.encoding))
            sys.stdout.flush()
            return sys.stdin.readline().strip().lower() in _YES
        finally:
            capture.resume_global_capture()
            capture.suspend_global_capture()
