"""The rollout of configs/training/multiply.toml: the workflow and the Grader of examples/multiply."""

from __future__ import annotations

from examples.multiply.rollouts.multiply.main import MultiplyGrader, MultiplyWorkflow

__all__ = ["MultiplyGrader", "MultiplyWorkflow"]
