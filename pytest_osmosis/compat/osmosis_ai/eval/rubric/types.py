"""`osmosis_ai.eval.rubric.types` of Osmosis 0.3."""

from __future__ import annotations

from pytest_osmosis.judges.evaluate_rubric import RubricResult
from pytest_osmosis.judges.rubric_errors import MissingAPIKeyError, ModelNotFoundError, ProviderRequestError

__all__ = ["MissingAPIKeyError", "ModelNotFoundError", "ProviderRequestError", "RubricResult"]
