"""The prices of tokens: `[prices]` of the config, else the price list of the extra `prices` (genai-prices).

An unknown price is None, never 0. The embedded model is free. If the config or a variable sets the address of a server,
the price is that of the address, because other servers charge other prices for the same model. Prices are those of
short prompts. Some services charge more for long ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.models.providers import SERVICES
from pytest_osmosis.models.targets import ModelTarget

PER = 1_000_000
OURS = "[prices]"
LISTED_AS = {
    "fireworks_ai": "fireworks", "gemini": "google", "moonshot": "moonshotai", "together_ai": "together", "xai": "x-ai",
}  # fmt: skip
"""The price list's own names for some providers."""
_RATES = ("input", "output", "cached_input", "cache_write")


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one model's tokens, and its source: "[prices]", "genai-prices 0.2.3" or "embedded"."""

    rates: TokenPrices
    source: str

    def cost_usd(self, usage: Mapping[str, int] | None) -> float | None:
        """Return the cost of these tokens in US dollars, or None without usage.

        Tokens read from a cache and written to it are part of the input, and have prices of their own.

        >>> Price(TokenPrices(2.0, 8.0, cached_input=0.5), OURS).cost_usd(
        ...     {"input_tokens": 1_000_000, "output_tokens": 500_000, "cached_input_tokens": 400_000}
        ... )
        5.4
        """
        if usage is None:
            return None
        read, written = usage.get("cached_input_tokens", 0), usage.get("cache_write_tokens", 0)
        fresh = max(0, usage.get("input_tokens", 0) - read - written)
        tokens = (fresh, usage.get("output_tokens", 0), read, written)
        cost = sum(count * rate for count, rate in zip(tokens, self._rates().values(), strict=True))
        return round(cost / PER, 12)

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, **self._rates()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Price:
        return cls(TokenPrices(*(float(value[name]) for name in _RATES)), value["source"])

    def _rates(self) -> dict[str, float]:
        rates = {name: getattr(self.rates, name) for name in _RATES}
        return {name: self.rates.input if rate is None else rate for name, rate in rates.items()}


FREE = Price(TokenPrices(0.0, 0.0), "embedded")


def price_of(model_path: str, target: ModelTarget, own: Mapping[str, TokenPrices], now: datetime) -> Price | None:
    """Return the price of the eval's model at the time `now`, or None if it is unknown. `own` is `[prices]`."""
    for name in (model_path, target.model):
        if name in own:
            return Price(own[name], OURS)
    if not target.is_remote:
        return FREE
    return _listed(target, now)


def _listed(target: ModelTarget, now: datetime) -> Price | None:
    """Return the price in genai-prices, if that is installed. Its list needs no network and has no private servers."""
    if target.base_url is not None and is_own(urlsplit(target.base_url).hostname or ""):
        return None
    try:
        import genai_prices
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    provider, model = target.provider, target.model
    if target.client == "litellm":
        provider, _, model = target.model.partition("/")
    service = SERVICES.get(provider)
    at_home = target.base_url in (None, service.base_url if service is not None else None)
    try:
        _, listed = get_snapshot().find_provider_model(
            model,
            None,
            provider_id=LISTED_AS.get(provider, provider) if at_home else None,
            provider_api_url=None if at_home else target.base_url,
        )
        rates = _rates(listed.get_prices(now))
    except (LookupError, AttributeError, TypeError):  # not listed, or the list has another shape in a later version
        return None
    return None if rates is None else Price(rates, f"genai-prices {genai_prices.__version__}")


def is_own(host: str) -> bool:
    """Return True for a private host: an address, or a name that the internet does not know.

    >>> is_own("localhost"), is_own("10.0.0.7"), is_own("::1"), is_own("gpu-box.local"), is_own("api.openai.com")
    (True, True, True, True, False)
    """
    is_address = ":" in host or host.replace(".", "").isdigit()
    return is_address or "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))


def _rates(listed: object) -> TokenPrices | None:
    """Return the rates of a listed model, or None if its price does not depend on tokens."""

    def rate(name: str) -> float | None:
        price = getattr(listed, f"{name}_mtok", None)
        price = getattr(price, "base", price)  # the first of several tiers
        return None if price is None else float(price)

    fresh, output = rate("input"), rate("output")
    if fresh is None or output is None:
        return None
    return TokenPrices(fresh, output, rate("cache_read"), rate("cache_write"))
