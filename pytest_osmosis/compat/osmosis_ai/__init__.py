"""The names of `osmosis_ai` itself, of all versions."""

from __future__ import annotations

from pytest_osmosis.compat.homes import names_from

HOMES = {
    "MissingAPIKeyError": ".rubric_types",
    "ModelNotFoundError": ".rubric_types",
    "ProviderRequestError": ".rubric_types",
    "evaluate_rubric": ".rubric_eval",
    "osmosis_reward": ".utils",
    "osmosis_rubric": ".utils",
}
"""The modules below this one that define the names."""

__all__ = [
    "MissingAPIKeyError",
    "ModelNotFoundError",
    "ProviderRequestError",
    "evaluate_rubric",
    "osmosis_reward",
    "osmosis_rubric",
]

__getattr__ = names_from(__name__, HOMES)
