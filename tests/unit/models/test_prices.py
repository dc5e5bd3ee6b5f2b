"""The prices of tokens and their sources; an unknown price is None and never 0."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import genai_prices
import pytest
from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import TokenPrices
from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.formats.price import Price
from pytest_osmosis.models.prices import FREE, price_from, price_of
from pytest_osmosis.models.targets import resolve

NOW = datetime(2026, 11, 1, tzinfo=UTC)
OWN = TokenPrices(1.0, 4.0)
MILLION = 1_000_000


def price(
    model: str, own: Mapping[str, TokenPrices] | None = None, environ: Mapping[str, str] | None = None, **table: Any
) -> Price | None:
    return price_of(model, resolve(model, ModelTable(**table), environ or {}, where="x.toml"), own or {}, NOW)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (None, None),
        ({"input_tokens": 0, "output_tokens": 0}, 0.0),
        ({"input_tokens": MILLION, "output_tokens": 0}, 2.0),
        ({"input_tokens": 0, "output_tokens": MILLION, "reasoning_tokens": MILLION}, 8.0),
        ({"input_tokens": MILLION, "output_tokens": 0, "cached_input_tokens": MILLION}, 0.5),
        ({"input_tokens": MILLION, "output_tokens": 0, "cache_write_tokens": MILLION // 2}, 1.0 + 1.5),
    ],
)
def test_cost_of_tokens(usage: Mapping[str, int] | None, cost: float | None) -> None:
    assert price_from(TokenPrices(2.0, 8.0, cached_input=0.5, cache_write=3.0), "[prices]").cost_usd(usage) == cost


def test_the_embedded_model_is_free_and_the_config_wins_and_needs_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert price("demo/arithmetic") == FREE
    for model, name in (("demo/arithmetic",) * 2, ("openai/gpt-5-mini",) * 2, ("openai/gpt-5-mini", "gpt-5-mini")):
        assert price(model, {name: OWN}) == price_from(OWN, "[prices]"), "the typed or the sent name"
    monkeypatch.setitem(sys.modules, "genai_prices", None)

    assert price("openai/gpt-4o") is None
    assert price("openai/gpt-4o", {"gpt-4o": OWN}) == price_from(OWN, "[prices]")


@pytest.mark.parametrize(
    ("model", "table"),
    [
        ("openai/gpt-4o", {}),
        ("anthropic/claude-sonnet-4-5", {}),
        ("gemini/gemini-3.8-flash", {}),
        ("together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo", {}),
        ("gpt-4o", {"base_url": "https://api.openai.com/v1"}),
        ("litellm/openai/gpt-4o", {}),
    ],
)
def test_a_listed_model_has_the_price_of_the_list(model: str, table: dict[str, Any]) -> None:
    found = price(model, **table)

    assert found is not None
    assert found.source == f"genai-prices {genai_prices.__version__}"
    assert 0 < found.input <= found.output


def test_a_listed_price_has_cache_prices_and_else_a_cache_costs_what_input_costs() -> None:
    found = price("anthropic/claude-sonnet-4-5")

    assert found is not None
    assert found == replace(found, input=3.0, output=15.0, cached_input=0.3, cache_write=3.75)
    usage = {"input_tokens": MILLION, "output_tokens": 0, "cached_input_tokens": 600_000, "cache_write_tokens": 400_000}

    assert price_from(TokenPrices(2.0, 8.0), "[prices]").cost_usd(usage) == 2.0


@pytest.mark.parametrize(
    ("model", "environ", "table"),
    [
        ("openai/no-such-model", {}, {}),
        ("ollama/llama3", {}, {}),
        ("gpt-4o", {}, {"base_url": "http://localhost:8000/v1"}),
        ("openai/gpt-4o", {"OPENAI_BASE_URL": "http://localhost:4000/v1"}, {}),
    ],
)
def test_an_unlisted_model_and_a_service_at_another_base_url_have_no_price(
    model: str, environ: Any, table: Any
) -> None:
    assert price(model, environ=environ, **table) is None
