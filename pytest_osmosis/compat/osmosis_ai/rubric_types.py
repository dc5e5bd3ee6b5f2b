"""`osmosis_ai.rubric_types` of Osmosis 0.2: the arguments, results and errors of `evaluate_rubric`."""

from __future__ import annotations

from pytest_osmosis.judges.evaluate_rubric import ModelInfo, RewardRubricRunResult
from pytest_osmosis.judges.rubric_errors import MissingAPIKeyError, ModelNotFoundError, ProviderRequestError

__all__ = ["MissingAPIKeyError", "ModelInfo", "ModelNotFoundError", "ProviderRequestError", "RewardRubricRunResult"]
