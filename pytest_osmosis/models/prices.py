"""The prices of tokens: `[prices]` of the config, else the price list of the extra `prices` (genai-prices).

An unknown price is None, never 0. The embedded model is free. If the config or a variable sets the address of a server,
the price is that of the address, because other servers charge other prices for the same model. Prices are those of
short prompts. Some services charge more for long ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.formats.price import Price
from pytest_osmosis.models.providers import SERVICES
from pytest_osmosis.models.targets import ModelTarget

OURS = "[prices]"
LISTED_AS = {
    "fireworks_ai": "fireworks", "gemini": "google", "moonshot": "moonshotai", "together_ai": "together", "xai": "x-ai",
}  # fmt: skip
"""The price list's own names for some providers."""


def price_from(rates: TokenPrices, source: str) -> Price:
    """Return the price by these rates, of which None equals that of input."""
    read, written = (rates.input if rate is None else rate for rate in (rates.cached_input, rates.cache_write))
    return Price(source, rates.input, rates.output, read, written)


FREE = price_from(TokenPrices(0.0, 0.0), "embedded")


def price_of(model_path: str, target: ModelTarget, own: Mapping[str, TokenPrices], now: datetime) -> Price | None:
    """Return the price of the eval's model at the time `now`, or None if it is unknown. `own` is `[prices]`."""
    for name in (model_path, target.model):
        if name in own:
            return price_from(own[name], OURS)
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
    return None if rates is None else price_from(rates, f"genai-prices {genai_prices.__version__}")


def is_own(host: str) -> bool:
    """Return True for a private host: an address, or a name that the internet does not know.

    >>> is_own("localhost"), is_own("10.0.0.7"), is_own("::1"), is_own("gpu-box.local"), is_own("api.openai.com")
    (True, True, True, True, False)
    """
    is_address = ":" in host or host.replace(".", "").isdigit()
    return is_address or "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))


def _rates(listed: object) -> TokenPrices | None:

    def rate(name: str) -> float | None:
        price = getattr(listed, f"{name}_mtok", None)
        price = getattr(price, "base", price)  # the first of several tiers
        return None if price is None else float(price)

    fresh, output = rate("input"), rate("output")
    if fresh is None or output is None:
        return None
    return TokenPrices(fresh, output, rate("cache_read"), rate("cache_write"))
