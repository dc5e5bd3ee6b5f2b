"""pytest-osmosis: evaluations of LLM agents as pytest suites.

The public names load when they are first asked for, so that importing the plugin stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_osmosis.errors import BoundError as BoundError
    from pytest_osmosis.errors import JudgeError as JudgeError
    from pytest_osmosis.errors import ModelError as ModelError
    from pytest_osmosis.errors import OsmosisError as OsmosisError
    from pytest_osmosis.errors import ScoreError as ScoreError
    from pytest_osmosis.models.base import ChatReply as ChatReply
    from pytest_osmosis.models.base import Usage as Usage
    from pytest_osmosis.record.run_id import RunId as RunId
    from pytest_osmosis.record.run_record import RewardError as RewardError
    from pytest_osmosis.record.run_record import RunRecord as RunRecord
    from pytest_osmosis.results.results import Results as Results
    from pytest_osmosis.rewards.graders import Grader as Grader
    from pytest_osmosis.rewards.graders import GraderConfig as GraderConfig
    from pytest_osmosis.rewards.graders import GraderContext as GraderContext
    from pytest_osmosis.rewards.graders import RolloutSample as RolloutSample
    from pytest_osmosis.rollouts.agents import AgentWorkflow as AgentWorkflow
    from pytest_osmosis.rollouts.agents import AgentWorkflowConfig as AgentWorkflowConfig
    from pytest_osmosis.rollouts.agents import AgentWorkflowContext as AgentWorkflowContext
    from pytest_osmosis.rollouts.agents import AgentWorkflowOutput as AgentWorkflowOutput
    from pytest_osmosis.rollouts.agents import ChatContext as ChatContext
    from pytest_osmosis.rollouts.agents import ConcurrencyConfig as ConcurrencyConfig
    from pytest_osmosis.seams import MissingAPIKeyError as MissingAPIKeyError
    from pytest_osmosis.seams import ModelNotFoundError as ModelNotFoundError
    from pytest_osmosis.seams import ProviderRequestError as ProviderRequestError
    from pytest_osmosis.seams import RewardWarning as RewardWarning
    from pytest_osmosis.seams import Rollout as Rollout
    from pytest_osmosis.seams import RubricResult as RubricResult
    from pytest_osmosis.seams import evaluate_rubric as evaluate_rubric
    from pytest_osmosis.seams import osmosis_reward as osmosis_reward
    from pytest_osmosis.seams import osmosis_rubric as osmosis_rubric
    from pytest_osmosis.stats.intervals import Interval as Interval
    from pytest_osmosis.stats.summary import Summary as Summary
    from pytest_osmosis.verdicts.gates import Verdict as Verdict

__version__ = "0.1.0"

HOMES = {
    "AgentWorkflow": "rollouts.agents",
    "AgentWorkflowConfig": "rollouts.agents",
    "AgentWorkflowContext": "rollouts.agents",
    "AgentWorkflowOutput": "rollouts.agents",
    "BoundError": "errors",
    "ChatContext": "rollouts.agents",
    "ChatReply": "models.base",
    "ConcurrencyConfig": "rollouts.agents",
    "Grader": "rewards.graders",
    "GraderConfig": "rewards.graders",
    "GraderContext": "rewards.graders",
    "Interval": "stats.intervals",
    "JudgeError": "errors",
    "MissingAPIKeyError": "seams",
    "ModelError": "errors",
    "ModelNotFoundError": "seams",
    "OsmosisError": "errors",
    "ProviderRequestError": "seams",
    "Results": "results.results",
    "RewardError": "record.run_record",
    "RewardWarning": "seams",
    "Rollout": "seams",
    "RolloutSample": "rewards.graders",
    "RubricResult": "seams",
    "RunId": "record.run_id",
    "RunRecord": "record.run_record",
    "ScoreError": "errors",
    "Summary": "stats.summary",
    "Usage": "models.base",
    "Verdict": "verdicts.gates",
    "evaluate_rubric": "seams",
    "osmosis_reward": "seams",
    "osmosis_rubric": "seams",
}

__all__ = ["__version__", *HOMES]


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
    globals()[name] = value
    return value
