"""`Price`: what the tokens of a model cost, as it is stored, published and sent to hosts."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pytest_osmosis.formats.codec import Amount

PER = 1_000_000


class Price(Struct, frozen=True):
    """The price of one model in US dollars per million tokens.

    Its source is "[prices]", "genai-prices 0.2.3" or "embedded".
    """

    source: str
    input: Amount
    output: Amount
    cached_input: Amount
    cache_write: Amount

    def cost_usd(self, usage: Mapping[str, int] | None) -> float | None:
        """Return the cost of these tokens in US dollars, or None without usage.

        Tokens read from a cache and written to it are part of the input, and have prices of their own.

        >>> Price("[prices]", 2.0, 8.0, cached_input=0.5, cache_write=2.0).cost_usd(
        ...     {"input_tokens": 1_000_000, "output_tokens": 500_000, "cached_input_tokens": 400_000}
        ... )
        5.4
        """
        if usage is None:
            return None
        read, written = usage.get("cached_input_tokens", 0), usage.get("cache_write_tokens", 0)
        fresh = max(0, usage.get("input_tokens", 0) - read - written)
        cost = fresh * self.input + usage.get("output_tokens", 0) * self.output
        return round((cost + read * self.cached_input + written * self.cache_write) / PER, 12)
