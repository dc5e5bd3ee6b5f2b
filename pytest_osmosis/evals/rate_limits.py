"""The limits per minute of an eval's provider, and their words in the header."""

from __future__ import annotations

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.engine.limits import Limits, least_s
from pytest_osmosis.results.read import PublishedHead
from pytest_osmosis.text.numbers import plural, seconds


def rate_limits(config: EvalConfig) -> Limits:
    """Return the limits that `[execution]` sets."""
    return Limits(config.execution.requests_per_minute, config.execution.tokens_per_minute)


def rate_limit_texts(config: EvalConfig, n_rollouts: int, last: PublishedHead | None) -> list[str]:
    """Return a text for each limit, with the least time that `n_rollouts` take under it."""
    requests, tokens = rate_limits(config)
    texts = []
    if requests is not None:
        least = seconds(least_s(n_rollouts, requests))
        texts.append(f"{plural(requests, 'request')} a minute: at least {least} at one request a rollout")
    if tokens is not None:
        estimate = ""
        if last is not None and last.total_tokens:
            least = seconds(least_s(last.total_tokens * n_rollouts / last.total_runs, tokens))
            estimate = f": about {least} by the last run's tokens"
        texts.append(f"{plural(tokens, 'token')} a minute{estimate}")
    return texts
