"""`osmosis_ai.eval.rubric.engine` of Osmosis 0.3."""

from __future__ import annotations

from pytest_osmosis.judges.evaluate_rubric import evaluate_rubric

__all__ = ["evaluate_rubric"]
