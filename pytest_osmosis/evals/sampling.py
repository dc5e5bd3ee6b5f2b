"""The sampling parameters of requests, and their words in the header."""

from __future__ import annotations

from typing import Any

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.models.targets import ModelTarget


def request_sampling(config: EvalConfig) -> dict[str, Any]:
    """Return the parameters that `[sampling]` adds to requests, except the seed, which differs between runs."""
    sampling = config.sampling
    values = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
    }
    return {**{name: value for name, value in values.items() if value is not None}, **sampling.extra_body}


def sampling_text(config: EvalConfig, target: ModelTarget) -> str:
    """Return `[sampling]` in words: "temperature 1, seed 0", or "the model's defaults"."""
    texts = [f"{name} {value}" for name, value in request_sampling(config).items()]
    if config.sampling.seed is not None:
        texts.append(f"seed {config.sampling.seed}{_seed_note(target)}")
    return ", ".join(texts) or "the model's defaults"


def _seed_note(target: ModelTarget) -> str:
    if target.seed_key is None:
        return " (not sent: this provider takes none)"
    return " (sent where the provider takes one)" if target.client == "litellm" else ""
