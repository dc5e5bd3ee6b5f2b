"""`osmosis_ai.rubric_eval` of Osmosis 0.2."""

from __future__ import annotations

from pytest_osmosis.judges.evaluate_rubric import ModelInfo, RewardRubricRunResult, evaluate_rubric
from pytest_osmosis.judges.rubric_errors import MissingAPIKeyError

__all__ = ["MissingAPIKeyError", "ModelInfo", "RewardRubricRunResult", "evaluate_rubric"]
